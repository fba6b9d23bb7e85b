"""Whatever is wrong with what a provider says: no error of ours, and no log of one, holds the payer that it names."""

import hashlib
import io
import json
import traceback
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from payments.errors import NotificationMalformed, OutcomeUnknown, ProviderError
from payments.providers.alipay.client import Alipay
from payments.providers.wechat.client import WeChatPay
from payments.sandbox import keys
from tests.unit.payments.providers import test_alipay_bill, test_alipay_notifications
from tests.unit.payments.providers.conftest import Company, alipay_says, signed, stripe_says
from tests.unit.payments.providers.test_alipay_calls import BILL, DAY
from tests.unit.payments.providers.test_wechat_bill import NAMES, PAID, announced, bill, offering

PAYER, NUMBER = "oUpF8uMuAJO_M2pxb1Q9zNjWeS6o", "a" * 32
BAD = "杯".encode()[:2]


def untold(call: Callable[[], Any], expected: type[ProviderError] = OutcomeUnknown) -> ProviderError:
    """What it raises, after looking for the payer in the error, its repr and what a log with traceback prints."""
    with pytest.raises(expected) as caught:
        call()
    error = caught.value
    printed = "".join(traceback.format_exception(error))
    for text in (str(error), repr(error), printed):
        assert PAYER not in text
    return error


def of_wechat(company: Company, content: bytes) -> None:
    """The bill is `content`, and its announcement is genuine."""
    told = announced(company, hash_value=hashlib.sha1(content).hexdigest())
    offering(company, told, lambda: (200, {}, content))


def test_a_bad_byte_in_wechat_s_bill(wechat: WeChatPay, company: Company) -> None:
    whole = bill({**PAID, "用户标识": PAYER, "商品名称": "BAD"})
    of_wechat(company, whole.replace(b"BAD", BAD))
    assert "UnicodeDecodeError" in str(untold(lambda: wechat.bill(day=DAY)))


@pytest.mark.parametrize("name", ["交易状态", "订单金额", "交易时间", "货币种类"])
def test_a_payer_in_another_column_of_wechat_s_bill(wechat: WeChatPay, company: Company, name: str) -> None:
    """As if the columns had moved: what is refused there is never told."""
    assert name in NAMES
    of_wechat(company, bill({**PAID, name: PAYER}))
    told = untold(lambda: wechat.bill(day=DAY))
    assert "ValueError at " in str(told)  # whose line tells which rule was broken


def test_a_bad_byte_in_a_genuine_answer_of_wechat_s(wechat: WeChatPay, company: Company) -> None:
    trade = json.dumps({"trade_state": "SUCCESS", "payer": {"openid": PAYER}, "attach": "BAD"}).encode()
    company.answer = signed(trade.replace(b"BAD", BAD))
    assert "UnicodeDecodeError" in str(untold(lambda: wechat.query(out_trade_no=NUMBER)))


def test_a_bad_byte_in_alipay_s_bill(alipay: Alipay, company: Company) -> None:
    row = test_alipay_bill.PAYMENT.replace("杯子", f"{PAYER} BAD")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        top = f"#账号：[{alipay.merchant}0156]\r\n"
        archive.writestr("1.csv", test_alipay_bill.table(row, top=top).encode("gb18030").replace(b"BAD", b"\xff"))
    genuine = alipay_says(BILL, {"code": "10000", "bill_download_url": f"{company.url}/bill"})
    company.answer = lambda body: genuine(body) if body else (200, {}, target.getvalue())
    assert "UnicodeDecodeError" in str(untold(lambda: alipay.bill(day=DAY)))


def test_a_bad_byte_in_an_answer_of_alipay_s(alipay: Alipay, company: Company) -> None:
    told = {"code": "10000", "buyer_user_id": PAYER, "subject": "BAD"}
    status, headers, body = alipay_says("alipay.trade.query", told)(b"")
    company.answer = lambda _: (status, headers, body.replace(b"BAD", BAD))
    untold(lambda: alipay.query(out_trade_no=NUMBER))


@pytest.mark.parametrize("field", ["total_amount", "gmt_payment"])
def test_a_payer_in_a_field_of_alipay_s_notification(alipay: Alipay, platform: keys.Keys, field: str) -> None:
    form = test_alipay_notifications.form(platform, **{field: PAYER})
    body = test_alipay_notifications.signed(platform, form)
    untold(lambda: test_alipay_notifications.read(alipay, body), NotificationMalformed)


def test_a_payer_in_what_is_no_form(alipay: Alipay) -> None:
    untold(lambda: test_alipay_notifications.read(alipay, PAYER.encode()), NotificationMalformed)


def test_an_answer_of_stripe_s_that_is_no_json(stripe: Any, company: Company) -> None:
    company.answer = stripe_says(f'{{"data": [{{"receipt_email": "{PAYER}"}}'.encode())
    untold(lambda: stripe.query(out_trade_no=NUMBER))


def test_an_answer_that_is_no_http(wechat: WeChatPay, company: Company) -> None:
    """The rest of somebody else's answer may stand where an answer begins."""
    company.answer = lambda _: (200, {f"X {PAYER}": "x"}, b"")
    untold(lambda: wechat.query(out_trade_no=NUMBER))
