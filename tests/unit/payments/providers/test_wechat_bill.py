"""WeChat's daily bill: what its lines say, what is refused, and where it may come from."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pytest

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.base import BillLine, FactKind
from payments.providers.documents import CHINA
from payments.providers.wechat import client as wechat_module
from payments.providers.wechat.bill import parse
from payments.providers.wechat.client import WeChatPay
from tests.unit.payments.providers.conftest import Answer, Company, channels, signed

DAY = date(2026, 11, 20)
_NAMES = (
    "交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,"
    "应结订单金额,代金券金额,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,商品名称,商户数据包,"
    "手续费,费率,订单金额,申请退款金额,费率备注"
)
NAMES = _NAMES.split(",")
WITHOUT_TEXTS = [name for name in NAMES if name not in ("商品名称", "商户数据包")]
SUMMARY = "总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,订单总金额,申请退款总金额"
PAID = {
    "交易时间": "2026-11-20 09:30:01",
    "商户号": "1900000001",
    "微信订单号": "4200000001",
    "商户订单号": "a" * 32,
    "用户标识": "o1",
    "交易类型": "NATIVE",
    "交易状态": "SUCCESS",
    "货币种类": "CNY",
    "应结订单金额": "14.90",  # a coupon of the merchant's took part
    "代金券金额": "5.00",
    "微信退款单号": "0",
    "商户退款单号": "0",
    "退款金额": "0.00",
    "商品名称": "杯子",
    "订单金额": "19.90",
    "申请退款金额": "0.00",
}
REFUNDED = {
    **PAID,
    "交易时间": "2026-11-20 23:59:59",
    "交易状态": "REFUND",
    "微信退款单号": "5030000001",
    "商户退款单号": "b" * 32,
    "退款金额": "5.00",
    "退款类型": "ORIGINAL",
    "退款状态": "SUCCESS",
    "订单金额": "0.00",
    "申请退款金额": "9.90",
}


def bill(
    *rows: dict[str, str],
    names: list[str] = NAMES,
    summary: str = SUMMARY,
    count: str | None = None,
    end: str = "\r\n",
) -> bytes:
    lines = [",".join(names)]
    lines += [",".join(f"`{row.get(name, '')}" for name in names) for row in rows]
    lines += [summary, ",".join(f"`{value}" for value in (count or str(len(rows)), "0", "0", "0", "0", "0", "0"))]
    return end.join([*lines, ""]).encode()


def test_payments_and_refunds_are_read() -> None:
    paid, refunded = parse(bill(PAID, REFUNDED))
    assert paid == BillLine(
        kind=FactKind.PAID,
        out_trade_no="a" * 32,
        provider_txn_id="4200000001",
        out_refund_no="",
        amount_minor=1990,
        currency="CNY",
        occurred_at=datetime(2026, 11, 20, 9, 30, 1, tzinfo=CHINA),
    )
    at = datetime(2026, 11, 20, 23, 59, 59, tzinfo=CHINA)
    back = {"provider_txn_id": "5030000001", "out_refund_no": "b" * 32, "amount_minor": 990, "occurred_at": at}
    assert refunded == replace(paid, kind=FactKind.REFUNDED, **back)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("SUCCESS", ["succeeded"]),
        ("PROCESSING", ["processing"]),
        ("CHANGE", ["stuck"]),
        ("FAIL", []),
        ("NEW", []),
    ],
)
def test_a_refund_says_whether_it_is_done(status: str, said: list[str]) -> None:
    assert [line.refund_status for line in parse(bill({**REFUNDED, "退款状态": status}))] == said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no column"),
        (b"\xff\xfe", "decode"),
        (bill(PAID, names=[name for name in NAMES if name != "订单金额"]), "no column 订单金额"),
        (bill(PAID, count="2"), "its summary says 2"),
        (bill(PAID, summary="合计"), "no summary"),
        (bill(PAID, PAID)[:-200], "no summary|backtick|values"),
        (bill({**PAID, "订单金额": "-19.90"}), "not an amount"),
        (bill({**PAID, "订单金额": "0.00"}), "moves no money"),
        (bill({**PAID, "货币种类": "XXX"}), "unknown currency"),
        (bill({**PAID, "交易状态": "NEW"}), "unknown trade state"),
        (bill({**PAID, "商户订单号": ""}), "商户订单号 is missing"),
        (bill({**REFUNDED, "商户退款单号": "0"}), "商户退款单号 is missing"),
        (bill({**REFUNDED, "微信退款单号": "0"}), "微信退款单号 is missing"),
        (bill({**PAID, "交易时间": "yesterday"}), "does not match"),
        (bill(PAID).replace(b"`2026", b"2026"), "backtick"),
        (bill({**PAID, "商品名称": "two\nlines"}), "values for|backtick"),
        (bill(PAID, names=WITHOUT_TEXTS).replace(b"`CNY", b"`CNY,`x"), "26 values for 25"),
    ],
)
def test_what_is_no_bill(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(content)


def announced(company: Company, **changed: Any) -> dict[str, Any]:
    said = {
        "hash_type": "SHA1",
        "hash_value": hashlib.sha1(bill(PAID, REFUNDED)).hexdigest(),
        "download_url": f"{company.url}/v3/billdownload/file?token=6XIv5T%2D_&tartype=gzip",
    }
    return {**said, **changed}


def offering(company: Company, said: Any, file: Callable[[], Answer]) -> None:
    """Announces `said`, genuinely signed; the file comes unsigned."""
    company.answer = lambda body: (
        file() if company.asked[-1][0].startswith("/v3/billdownload/") else signed(said)(body)
    )


def whole_bill() -> Answer:
    return 200, {"Content-Type": "text/plain"}, bill(PAID, REFUNDED)


def test_the_bill_is_asked_for_downloaded_and_read(wechat: WeChatPay, company: Company) -> None:
    offering(company, announced(company, hash_value=announced(company)["hash_value"].upper()), whole_bill)
    assert wechat.bill(day=DAY) == parse(bill(PAID, REFUNDED))
    asked, downloaded = company.asked
    assert asked[0] == "/v3/bill/tradebill?bill_date=2026-11-20&bill_type=ALL"
    assert downloaded[0] == "/v3/billdownload/file?token=6XIv5T%2D_&tartype=gzip"
    assert downloaded[1]["Authorization"].startswith("WECHATPAY2-SHA256-RSA2048 mchid=")
    assert downloaded[1]["Accept-Encoding"] == "identity"


def test_no_bill_is_believed_from_ten_o_clock_of_the_next_morning_on(wechat: WeChatPay, company: Company) -> None:
    day = datetime.now(CHINA).date()
    ten = datetime(day.year, day.month, day.day, 10, tzinfo=CHINA).timestamp() + 86_400
    for moment, code, refused in (
        (ten - 1, "NO_STATEMENT_EXIST", ProviderUnavailable),
        (ten, "NO_STATEMENT_EXIST", None),
        (ten, "STATEMENT_CREATING", ProviderUnavailable),
        (ten, "PARAM_ERROR", ProviderRejected),
    ):
        company.answer = signed({"code": code}, status=400, age_seconds=int(time.time() - moment))
        then = WeChatPay(channels(company)["wechat"], nullcontext, clock=lambda moment=moment: moment)
        with pytest.raises(refused) if refused else nullcontext():
            assert then.bill(day=day) == ()


def test_a_download_is_one_call_within_the_limits(platform: Any, company: Company) -> None:
    entered: list[int] = []

    @contextmanager
    def limit() -> Iterator[None]:
        entered.append(len(company.asked))
        if len(entered) == 2:
            raise ProviderUnavailable("no room")
        yield

    offering(company, announced(company), whole_bill)
    with pytest.raises(ProviderUnavailable, match="no room"):
        WeChatPay(channels(company)["wechat"], limit).bill(day=DAY)
    assert (entered, len(company.asked)) == ([0, 1], 1)


BOTH = (PAID, REFUNDED)
DESCRIBED = ("a, b", "`", ",`0.01,`0.01,`", '"quoted')
ALIKE = [
    *(bill(*BOTH, names=order) for order in (NAMES[::-1], [*NAMES, "新的一列"])),
    *(bill(*BOTH, end="\n"), "\ufeff".encode() + bill(*BOTH), bill(*BOTH).rstrip()),
    *(bill({**PAID, column: text}, REFUNDED) for text in DESCRIBED for column in ("商品名称", "商户数据包")),
    bill(*BOTH, {**PAID, "交易状态": "REVOKED"}),  # which a till took back
]


@pytest.mark.parametrize("content", ALIKE)
def test_no_order_of_columns_description_or_line_end_changes_what_is_read(content: bytes) -> None:
    assert parse(content) == parse(bill(*BOTH))


def test_a_bill_without_lines_and_a_line_without_time() -> None:
    assert parse(bill()) == ()
    (line,) = parse(bill({**PAID, "交易时间": ""}))
    assert line.occurred_at is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *((content, "announced") for content in (bill(PAID), bill(PAID, REFUNDED) + b" ", b"")),
        (b"x", "bill cannot be read"),  # as it was announced
        (b"x" * 100_001, "larger than 100000 bytes"),
    ],
)
def test_a_file_that_is_not_the_announced_bill(
    wechat: WeChatPay, company: Company, monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    monkeypatch.setattr(wechat_module, "BILL_BYTES_MAX", 100_000)
    known = {"hash_value": hashlib.sha1(b"x").hexdigest()} if content == b"x" else {}
    offering(company, announced(company, **known), lambda: (200, {}, content))
    with pytest.raises(OutcomeUnknown, match=why):
        wechat.bill(day=DAY)


@pytest.mark.parametrize(
    "changed",
    [
        *({"hash_type": "MD5"}, {"hash_value": ""}, {"hash_value": None}, {"download_url": 5}),
        *(
            {"download_url": address}
            for address in (
                *("http://localhost:{port}/v3/billdownload/file", "https://127.0.0.1:{port}/v3/billdownload/file"),
                *("http://127.0.0.1:1/v3/billdownload/file", "http://user@127.0.0.1:{port}/v3/billdownload/file"),
                *(
                    "http://127.0.0.1:{port}.evil.example/v3/billdownload/file",
                    "http://127.0.0.1:{port}/other/file",
                ),
                *("http://127.0.0.1:{port}/v3/../other/file", "//127.0.0.1:{port}/v3/billdownload/file"),
                *(
                    "file:///v3/billdownload/file",
                    "http://127.0.0.1:{port}/v3/\x00",
                    "http://127.0.0.1:99999999/v3/",
                ),
            )
        ),
    ],
)
def test_an_announcement_of_another_shape_or_place_is_not_followed(
    wechat: WeChatPay, company: Company, changed: dict[str, Any]
) -> None:
    port = company.url.rsplit(":", 1)[1]
    given = {
        name: value.replace("{port}", port) if isinstance(value, str) else value for name, value in changed.items()
    }
    offering(company, announced(company, **given), whole_bill)
    with pytest.raises(OutcomeUnknown):
        wechat.bill(day=DAY)
    assert len(company.asked) == 1
