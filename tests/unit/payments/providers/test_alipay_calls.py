"""Alipay's QR codes and bills: what is sent, and which answers prove nothing."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import parse_qsl

import pytest

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.actions import NextActionType, PayMethod
from payments.providers.alipay import bill as alipay_bill
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


@dataclass
class Bills:
    company: Company
    address: Any
    file: bytes

    def answer(self, body: bytes) -> Answer:
        if body:
            return alipay_says(BILL, {"code": "10000", "bill_download_url": self.address})(body)
        return 200, {}, self.file


@pytest.fixture
def bills(company: Company, platform: keys.Keys) -> Bills:
    top = f"#账号：[{platform.settings['ALIPAY_SELLER_ID']}0156]\r\n#起始日期：[2026年11月20日 00:00:00]\r\n"
    made = Bills(company, f"{company.url}/bill", packed(table(PAYMENT, REFUND, top=top)))
    company.answer = made.answer
    return made


def test_a_bill_is_asked_for_fetched_and_read(alipay: Alipay, bills: Bills) -> None:
    lines = alipay.bill(day=DAY)
    assert {line.occurred_at.astimezone(alipay.zone).date() for line in lines if line.occurred_at} == {DAY}
    assert [(line.kind, line.amount_minor) for line in lines] == [("paid", 1990), ("refunded", 990)]
    assert [path for path, _ in bills.company.asked] == ["/gateway.do", "/bill"]
    assert bills.company.asked[1][1]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        *(
            ({"address": address}, "address")
            for address in ("http://127.0.0.1:1/bill", None, "https://exa mple/\x00")
        ),
        *(({"file": content}, None) for content in (b"", b"<html>", packed(table(PAYMENT)))),
        ({"file": b"x" * 1001}, "larger than 1000 bytes"),
    ],
)
def test_what_is_not_the_bill(
    alipay: Alipay, bills: Bills, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], why: str | None
) -> None:
    monkeypatch.setattr(alipay_bill, "MAX_PACKED_BYTES", 1000)
    vars(bills).update(changed)
    with pytest.raises(OutcomeUnknown, match=why):
        alipay.bill(day=DAY)
    assert [path for path, _ in bills.company.asked] == ["/gateway.do", "/bill"][
        : 1 if "address" in changed else 2
    ]


@pytest.fixture
def at(platform: keys.Keys, company: Company) -> Callable[[float], Alipay]:
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
