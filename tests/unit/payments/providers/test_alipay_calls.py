"""Alipay's QR codes and bills: what is sent, and which answers prove nothing."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import date, datetime
from typing import Any
from urllib.parse import parse_qsl

import pytest

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.actions import NextActionType, PayMethod
from payments.providers.alipay import bill as alipay_bill
from payments.providers.alipay.bill import MAX_PACKED_BYTES
from payments.providers.alipay.client import Alipay
from payments.providers.documents import CHINA
from payments.sandbox import keys
from tests.unit.payments.providers.conftest import NUMBER, Answer, Company, alipay_says, channels, create
from tests.unit.payments.providers.test_alipay_bill import PAYMENT, REFUND, packed, table

DAY = date(2026, 11, 20)
PRECREATE = "alipay.trade.precreate"
BILL = "alipay.data.dataservice.bill.downloadurl.query"
CODE = {"code": "10000", "out_trade_no": NUMBER, "qr_code": "https://qr.alipay.com/bax0"}


def test_a_code_is_asked_for_and_drawn(alipay: Alipay, company: Company) -> None:
    company.answer = alipay_says(PRECREATE, CODE)
    action = create(alipay, method=PayMethod.PRECREATE)
    assert (action.type, action.url) == (NextActionType.QR_CODE, "https://qr.alipay.com/bax0")
    assert (dict(action.params), action.reference) == ({}, "")
    sent = dict(parse_qsl(company.bodies[0].decode()))
    assert (sent["method"], sent["notify_url"]) == (PRECREATE, "http://127.0.0.1:1/n")
    assert sent["biz_content"] == (
        f'{{"out_trade_no":"{NUMBER}","total_amount":"19.90","subject":"杯子","time_expire":"2026-11-20 12:00:00"}}'
    )


class Bills:
    """A bill: the question is answered with its address, the address with the file."""

    def __init__(self, company: Company, settings: dict[str, str]) -> None:
        self.company = company
        self.address = f"{company.url}/bill"
        self.file: Answer = (200, {}, packed_for(settings))
        company.answer = self.answer

    def answer(self, body: bytes) -> Answer:
        if body:
            return alipay_says(BILL, {"code": "10000", "bill_download_url": self.address})(body)
        return self.file


def packed_for(settings: dict[str, str]) -> bytes:
    top = f"#账号：[{settings['ALIPAY_SELLER_ID']}0156]\r\n#起始日期：[2026年11月20日 00:00:00]\r\n"
    return packed(table(PAYMENT, REFUND, top=top))


@pytest.fixture
def bills(company: Company, platform: keys.Keys) -> Bills:
    return Bills(company, dict(platform.settings))


def test_a_bill_is_asked_for_fetched_and_read(alipay: Alipay, bills: Bills) -> None:
    lines = alipay.bill(day=DAY)
    assert {line.occurred_at.astimezone(alipay.zone).date() for line in lines if line.occurred_at} == {DAY}
    assert [(line.kind, line.amount_minor) for line in lines] == [("paid", 1990), ("refunded", 990)]
    assert [path for path, _ in bills.company.asked] == ["/gateway.do", "/bill"]
    _, headers = bills.company.asked[1]
    assert headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/bill", None, "https://files.example:port/x", "https://exa mple/\x00"]
)
def test_a_foreign_address_is_refused(alipay: Alipay, bills: Bills, address: Any) -> None:
    """All that makes one foreign is in test_alipay_bill.py."""
    bills.address = address
    with pytest.raises(OutcomeUnknown, match="address"):
        alipay.bill(day=DAY)
    assert [path for path, _ in bills.company.asked] == ["/gateway.do"]


@pytest.mark.parametrize("content", [b"", b"<html>", packed(table(PAYMENT))], ids=["empty", "html", "another's"])
def test_files_that_are_not_the_bill(alipay: Alipay, bills: Bills, content: bytes) -> None:
    bills.file = (200, {}, content)
    with pytest.raises(OutcomeUnknown):
        alipay.bill(day=DAY)


def test_a_file_that_is_too_large_is_left(alipay: Alipay, bills: Bills, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alipay_bill, "MAX_PACKED_BYTES", 1000)
    bills.file = (200, {}, b"x" * 1001)
    with pytest.raises(OutcomeUnknown, match="larger than 1000 bytes"):
        alipay.bill(day=DAY)
    assert MAX_PACKED_BYTES == 32 * 2**20


@pytest.fixture
def at(platform: keys.Keys, company: Company) -> Callable[[float], Alipay]:
    """Our side with a clock of the test's own."""
    return lambda moment: Alipay(channels(company)["alipay"], nullcontext, clock=lambda: moment)


def test_no_bill_is_believed_once_it_would_be_there(at: Callable[[float], Alipay], company: Company) -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=CHINA).timestamp()
    company.answer = alipay_says(BILL, {"code": "40004", "sub_code": "isp.bill_not_exist"})
    assert at(noon).bill(day=DAY) == ()
    with pytest.raises(ProviderUnavailable, match="2026-11-20 is not made yet"):
        at(noon - 1).bill(day=DAY)
    company.answer = alipay_says(BILL, {"code": "40004", "sub_code": "isv.invalid-arguments"})
    with pytest.raises(ProviderRejected, match=r"isv\.invalid-arguments"):
        at(noon).bill(day=DAY)
    company.answer = alipay_says(BILL, {"code": "40004", "sub_code": "isp.bill_not_exist"}, forge=True)
    with pytest.raises(OutcomeUnknown):
        at(noon).bill(day=DAY)
