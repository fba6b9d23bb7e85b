"""Alipay's bill: what is read from it, what is no bill, and where it may come from."""

import io
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from datetime import date, datetime

import pytest

from payments.providers.alipay.bill import checked_address, read_bill
from payments.providers.base import BillLine, FactKind
from payments.providers.documents import CHINA

DAY = date(2026, 11, 20)
SELLER = "2088000000000001"
HEADER = "支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,订单金额（元）,退款批次号/请求号,备注"
PAYMENT = '2026112022001\t,order1\t,交易,"杯子, 白",2026-11-20 09:00:00,2026-11-20 09:00:30,19.90\t,\t,'
REFUND = "2026112022001\t,order1\t,退款,杯子,2026-11-20 09:00:00,2026-11-20 10:00:00,-9.90,refund1\t,"
TOP = f"#支付宝业务明细查询\r\n#账号：[{SELLER}0156]\r\n#起始日期：[2026年11月20日 00:00:00]   终止日期：[…]\r\n"


def table(*rows: str, header: str = HEADER, top: str = TOP) -> str:
    end = "#----业务明细列表结束----\r\n#交易合计：1笔\r\n"
    return top + "".join(f"{row}\r\n" for row in (header, *rows)) + end


def packed(*tables: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.writestr("sums.csv", "门店编号,门店名称\r\n合计,\r\n".encode("gbk"))
        for number, text in enumerate(tables):
            archive.writestr(f"{number}.csv", text.encode("gbk"))
    return target.getvalue()


def read(content: bytes) -> tuple[BillLine, ...]:
    return read_bill(content, day=DAY, seller_id=SELLER)


def test_payments_and_refunds_are_read() -> None:
    paid, refunded = read(packed(table(PAYMENT, REFUND)))
    assert paid == BillLine(
        kind=FactKind.PAID,
        out_trade_no="order1",
        provider_txn_id="2026112022001",
        out_refund_no="",
        amount_minor=1990,
        currency="CNY",
        occurred_at=datetime(2026, 11, 20, 9, 0, 30, tzinfo=CHINA),
    )
    at = datetime(2026, 11, 20, 10, tzinfo=CHINA)
    back = {"provider_txn_id": "refund1", "out_refund_no": "refund1", "amount_minor": 990, "occurred_at": at}
    assert refunded == replace(paid, kind=FactKind.REFUNDED, **back)


def test_columns_go_by_their_names_and_tables_may_be_several() -> None:
    other = "备注,订单金额(元),业务类型,退款批次号/请求号,商户订单号,完成时间,支付宝交易号"
    row = ",5.00,交易,,order2,,2026112022002"
    lines = read(packed(table(PAYMENT), table(row, header=other), method=zipfile.ZIP_STORED))
    assert [(line.out_trade_no, line.amount_minor) for line in lines] == [("order1", 1990), ("order2", 500)]
    assert lines[1].occurred_at is None


def test_rows_that_are_read_all_the_same() -> None:
    assert read(packed(table())) == ()
    (unnumbered,) = read(packed(table(REFUND.replace("refund1", ""))))
    assert (unnumbered.out_refund_no, unnumbered.provider_txn_id) == ("order1", "order1")
    (named_like_a_comment,) = read(packed(table(PAYMENT.replace("杯子, 白", "杯子\r\n#账号：[1]\n"))))
    assert named_like_a_comment.amount_minor == 1990


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (table(PAYMENT, top=TOP.replace(SELLER, "2088000000000002")), "another account"),
        (table(PAYMENT, top=TOP.replace("11月20日", "11月19日")), "begins"),
        (table(PAYMENT.replace(",交易,", ",转账,")), "do not know"),
        (table(PAYMENT.replace("19.90", "-19.90")), "not an amount"),
        (table(PAYMENT.replace("19.90", "0.00")), "lacks"),
        (table(REFUND.replace("-9.90", "9.90")), "below zero"),
        (table(PAYMENT.replace("order1", "")), "lacks"),
        (table(PAYMENT.replace("2026112022001", "")), "lacks"),
        (table(PAYMENT.replace("2026-11-20 09:00:30", "yesterday")), "yesterday"),
        (table(PAYMENT + ",more"), "10 values under 9 names"),
        (table('"open'), "not a readable bill"),
        (table(PAYMENT, header=HEADER.replace("业务类型", "类型")), "no table"),
    ],
)
def test_what_is_not_the_bill_that_was_announced(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(packed(text))


def test_many_files_and_other_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="21 files"):
        read(packed(*[table()] * 20))
    with pytest.raises(ValueError, match="do not unpack"):
        read(packed(table(PAYMENT), method=zipfile.ZIP_LZMA))


GATEWAY = "https://openapi.alipay.com/gateway.do"

FOREIGN = (
    *("http://files.example/x", "http://evilalipay.com/x", "http://dwbillcenter.alipay.com:8080/x"),
    *("file:///etc/passwd", "https://user@dwbillcenter.alipay.com/x", "https://:secret@dwbillcenter.alipay.com/x"),
    *("https:///x", "https://[::1/x", "http://dwbillcenter.alipay.com:port/x"),
)


@pytest.mark.parametrize(
    ("url", "gateway", "asked"),
    [
        ("https://files.example/x", GATEWAY, "https://files.example/x"),
        ("http://dwbillcenter.alipay.com/x?a=1", GATEWAY, "https://dwbillcenter.alipay.com/x?a=1"),
        ("http://127.0.0.1:8001/bill?x=1", "http://127.0.0.1:8001/g", "http://127.0.0.1:8001/bill?x=1"),
        ("http://a.example:80/b", "http://a.example/g", "http://a.example:80/b"),
        ("http://127.0.0.1:8002/x", "http://127.0.0.1:8001/g", None),
        ("http://bills.example/x", "http://api.bills.example/g", None),
        *((url, GATEWAY, None) for url in FOREIGN),
    ],
)
def test_addresses_that_we_go_to(url: str, gateway: str, asked: str | None) -> None:
    with nullcontext() if asked else pytest.raises(ValueError):
        assert checked_address(url, gateway_url=gateway) == asked
