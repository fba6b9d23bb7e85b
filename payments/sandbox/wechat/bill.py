"""WeChat's trade bill of a day, made from the sandbox's own trades, and its download.

Unlike the platform, today's bill can be had too, as far as the day has come: a test cannot wait.
"""

import gzip
import hashlib
import secrets
import time
from datetime import date, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse

from payments import money
from payments.providers.documents import CHINA, TIME_FORMAT
from payments.sandbox import faults, state, trades
from payments.sandbox.wechat.documents import opened_by
from payments.sandbox.wechat.signing import Error

KEPT_SECONDS = 600
_COLUMNS = (
    "交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,"
    "应结订单金额,代金券金额,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,商品名称,商户数据包,"
    "手续费,费率,订单金额,申请退款金额,费率备注"
)
_SUMMARY = "总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,订单总金额,申请退款总金额"


def tradebill(request: HttpRequest) -> Any:
    if request.GET.get("bill_type", "ALL") != "ALL":
        raise ValueError("the sandbox makes bills of the type ALL only")
    if request.GET.get("tar_type", "GZIP") != "GZIP":
        raise ValueError("tar_type is GZIP or left out")
    day = date.fromisoformat(request.GET["bill_date"])
    if day > datetime.now(CHINA).date():
        raise ValueError("bill_date is in the future")
    content = bill(day)
    if content is None:
        raise Error(400, "NO_STATEMENT_EXIST", "no trade on this day")
    file = gzip.compress(content) if "tar_type" in request.GET else content
    token = secrets.token_urlsafe(32)
    with state.store().write() as connection:
        connection.execute("DELETE FROM wechat_bills WHERE created_at < ?", [time.time() - KEPT_SECONDS])
        connection.execute("INSERT INTO wechat_bills VALUES (?, ?, ?)", [token, file, time.time()])
    return {
        "hash_type": "SHA1",
        # of what is in the archive, as the documentation says
        "hash_value": hashlib.sha1(content).hexdigest(),  # noqa: S324  the platform's choice
        "download_url": request.build_absolute_uri(f"/wechat/v3/billdownload/file?token={token}"),
    }


def download(request: HttpRequest) -> Any:
    """Serve the file: the call is signed by the merchant, the answer unsigned."""
    found = state.store().row("SELECT content FROM wechat_bills WHERE token = ?", request.GET.get("token", ""))
    if found is None:
        raise Error(404, "RESOURCE_NOT_EXISTS", "no file of this token, or not any more")
    return HttpResponse(found["content"], content_type="application/octet-stream")


def bill(day: date) -> bytes | None:
    """Make the bill of `day` in China; None if nothing moved."""
    moved = trades.moved("wechat", day=day)
    if not moved:
        return None
    lines = [_line(_values(one)) for one in moved]
    paid_in = _yuan(sum(one.minor for one in moved if one.made is None))
    paid_out = _yuan(sum(one.minor for one in moved if one.made is not None))
    summary = _line([str(len(lines)), paid_in, paid_out, "0.00", "0.00000", paid_in, paid_out])
    return "".join(f"{line}\r\n" for line in (_COLUMNS, *lines, _SUMMARY, summary)).encode()


def _values(moved: trades.Movement) -> list[str]:
    """List a line's values, in the order of `_COLUMNS`."""
    trade, made, amount = moved.trade, moved.made, _yuan(moved.minor)
    settings, (trade_type, openid) = state.keys().settings, opened_by(trade["out_trade_no"])
    ordered, asked_back, back = amount, "0.00", ["0", "0", "0.00", "0.00", "", ""]
    if made is not None:
        status = "CHANGE" if faults.current()["refund_abnormal"] else "SUCCESS"
        ordered, asked_back = "0.00", amount
        back = [made["refund_id"], made["out_refund_no"], amount, "0.00", "ORIGINAL", status]
    return [
        *(datetime.fromtimestamp(moved.at, CHINA).strftime(TIME_FORMAT), settings["WECHAT_APP_ID"]),
        *(settings["WECHAT_MCH_ID"], "0", "", trade["transaction_id"], trade["out_trade_no"], openid, trade_type),
        *("REFUND" if made else "SUCCESS", "OTHERS", "CNY", ordered, "0.00", *back),
        *(" ".join(trade["description"].split()), "", "0.00000", "0.60%", ordered, asked_back, ""),
    ]


def _line(values: list[str]) -> str:
    return ",".join(f"`{value}" for value in values)


def _yuan(amount_minor: int) -> str:
    return money.to_decimal(amount_minor, "CNY")
