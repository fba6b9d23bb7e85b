"""Alipay's daily bill: two tables in GBK, zipped, at an address for half a minute.

Unlike the platform, the sandbox also has the bill of a day that is not over, so that tests need not wait.
"""

import csv
import io
import time
import zipfile
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any

from django.core import signing
from django.http import HttpRequest, HttpResponse

from payments.providers.documents import CHINA
from payments.sandbox import state, trades
from payments.sandbox.alipay.wire import Call, china_time, yuan

ADDRESS_SECONDS = 30
_SALT = "alipay bill"

Moved = tuple[list[trades.Movement], list[trades.Movement]]  # payments and refunds

_NAMES = (  # noqa: SIM905  as it stands in the file
    "支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,门店编号,门店名称,操作员,终端号,对方账户,"
    "订单金额（元）,商家实收（元）,支付宝红包（元）,集分宝（元）,支付宝优惠（元）,商家优惠（元）,券核销金额（元）,"
    "券名称,商家红包消费金额（元）,卡消费金额（元）,退款批次号/请求号,服务费（元）,分润（元）,备注"
).split(",")
_SUM_NAMES = (  # noqa: SIM905  likewise
    "门店编号,门店名称,交易订单总笔数,退款订单总笔数,订单金额（元）,商家实收（元）,支付宝优惠（元）,"
    "商家优惠（元）,卡消费金额（元）,服务费（元）,分润（元）,实收净额（元）"
).split(",")


def query(call: Call) -> dict[str, Any]:
    """Answer ``alipay.data.dataservice.bill.downloadurl.query``."""
    if call.content["bill_type"] != "trade":
        raise ValueError("only bills of bill_type trade are made here")
    day = datetime.strptime(call.content["bill_date"], "%Y-%m-%d").replace(tzinfo=CHINA).date()
    if not trades.moved("alipay", day=day):
        raise trades.Refused("no bill")
    ticket = signing.dumps(day.isoformat(), salt=_SALT)
    return {"bill_download_url": f"{call.base_url}/alipay/bill?bizType=trade&fileId={ticket}"}


def download(request: HttpRequest) -> HttpResponse:
    try:
        day = signing.loads(request.GET.get("fileId", ""), salt=_SALT, max_age=ADDRESS_SECONDS)
    except signing.BadSignature:
        return HttpResponse("地址已失效", status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(packed(date.fromisoformat(day)), content_type="application/zip")


def packed(day: date) -> bytes:
    both = trades.moved("alipay", day=day)
    moved = [one for one in both if one.made is None], [one for one in both if one.made is not None]
    prefix = f"{_account()}_{day:%Y%m%d}_业务明细"
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, table in ((f"{prefix}.csv", _detail(day, moved)), (f"{prefix}(汇总).csv", _sums(day, moved))):
            member = _GbkNamed(name, datetime.now(CHINA).timetuple()[:6])
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, table.encode("gbk", errors="replace"))
    return target.getvalue()


def _account() -> str:
    return state.keys().settings["ALIPAY_SELLER_ID"] + "0156"


class _GbkNamed(zipfile.ZipInfo):
    """A zip member with its name in GBK and no flag that says so, as the platform's."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802  the name that zipfile calls
        return self.filename.encode("gbk"), self.flag_bits


def _detail(day: date, moved: Moved) -> str:
    return _sheet(day, "业务明细", [_NAMES, *map(_row, chain(*moved))], moved)


def _row(moved: trades.Movement) -> list[str]:
    kind, sign, number = ("退款", "-", moved.made["out_refund_no"]) if moved.made else ("交易", "", "")
    row, amount = moved.trade, sign + yuan(moved.minor)
    none = ["0.00"] * 5
    return [
        *(f"{row['transaction_id']}\t", f"{row['out_trade_no']}\t", kind, row["description"]),
        *(china_time(row["created_at"]), china_time(moved.at), "", "", "", "", "san***@sandbox.example\t"),
        *(amount, amount, *none, "", "0.00", "0.00", f"{number}\t", "0.00", "0.00", ""),
    ]


def _sums(day: date, moved: Moved) -> str:
    paid, refunded = (sum(one.minor for one in rows) for rows in moved)
    net = ("-" if paid < refunded else "") + yuan(abs(paid - refunded))
    none = ["0.00"] * 5
    row = ["合计", "", str(len(moved[0])), str(len(moved[1])), net, net, *none, net]
    return _sheet(day, "业务汇总", [_SUM_NAMES, row], moved)


def _sheet(day: date, title: str, table: list[list[str]], moved: Moved) -> str:
    text = io.StringIO(newline="")
    rule = "-" * 41
    payments, refunds = moved
    paid, refunded = (sum(one.minor for one in rows) for rows in moved)
    ends = day + timedelta(days=1)
    text.write("#支付宝业务明细查询\r\n")
    text.write(f"#账号：[{_account()}]\r\n")
    text.write(f"#起始日期：[{day:%Y年%m月%d日} 00:00:00]   终止日期：[{ends:%Y年%m月%d日} 00:00:00]\r\n")
    text.write(f"#{rule}{title}列表{rule}\r\n")
    csv.writer(text, lineterminator="\r\n").writerows(table)
    text.write(f"#{rule}{title}列表结束{rule}\r\n")
    text.write(f"#交易合计：{len(payments)}笔，商家实收共{yuan(paid)}元，商家优惠共0.00元\r\n")
    text.write(f"#退款合计：{len(refunds)}笔，商家实收退款共-{yuan(refunded)}元，商家优惠退款共0.00元\r\n")
    text.write(f"#导出时间：[{datetime.fromtimestamp(time.time(), CHINA):%Y年%m月%d日 %H:%M:%S}]\r\n")
    return text.getvalue()
