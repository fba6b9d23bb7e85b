"""Wrong answers that name a payer: no error of ours, and no log of one, holds the name."""

import hashlib
import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from payments.errors import NotificationMalformed, OutcomeUnknown, ProviderError
from payments.providers.alipay.client import Alipay
from payments.providers.wechat.client import WeChatPay
from payments.sandbox import keys
from tests.unit.payments.providers import test_alipay_notifications
from tests.unit.payments.providers.conftest import Company, alipay_says, signed, stripe_says
from tests.unit.payments.providers.test_alipay_calls import DAY
from tests.unit.payments.providers.test_wechat_bill import PAID, announced, bill, offering

PAYER, NUMBER = "oUpF8uMuAJO_M2pxb1Q9zNjWeS6o", "a" * 32
BAD = "杯".encode()[:2]


def without_payer(call: Callable[[], Any], expected: type[ProviderError] = OutcomeUnknown) -> ProviderError:
    """Return what it raises; neither the error nor a log with traceback names the payer."""
    with pytest.raises(expected) as caught:
        call()
    error = caught.value
    printed = "".join(traceback.format_exception(error))
    for text in (str(error), repr(error), printed):
        assert PAYER not in text
    return error


def of_wechat(company: Company, content: bytes) -> None:
    """The bill is `content`, and its announcement is genuine."""
    said = announced(company, hash_value=hashlib.sha1(content).hexdigest())
    offering(company, said, lambda: (200, {}, content))


def test_in_wechat_s_bill(wechat: WeChatPay, company: Company) -> None:
    whole = bill({**PAID, "用户标识": PAYER, "商品名称": "BAD"})
    of_wechat(company, whole.replace(b"BAD", BAD))
    assert "UnicodeDecodeError at " in str(without_payer(lambda: wechat.bill(day=DAY)))
    for name in ("交易状态", "订单金额", "交易时间", "货币种类"):
        of_wechat(company, bill({**PAID, name: PAYER}))
        assert "ValueError at " in str(
            without_payer(lambda: wechat.bill(day=DAY))
        )  # whose line says which rule was broken


def test_a_bad_byte_in_an_answer(wechat: WeChatPay, alipay: Alipay, company: Company) -> None:
    trade = json.dumps({"trade_state": "SUCCESS", "payer": {"openid": PAYER}, "attach": "BAD"}).encode()
    company.answer = signed(trade.replace(b"BAD", BAD))
    assert "UnicodeDecodeError" in str(without_payer(lambda: wechat.query(out_trade_no=NUMBER)))
    said = {"code": "10000", "buyer_user_id": PAYER, "subject": "BAD"}
    status, headers, body = alipay_says("alipay.trade.query", said)(b"")
    company.answer = lambda _: (status, headers, body.replace(b"BAD", BAD))
    without_payer(lambda: alipay.query(out_trade_no=NUMBER))


def test_a_payer_in_alipay_s_notification(alipay: Alipay, platform: keys.Keys) -> None:
    forms = [test_alipay_notifications.form(platform, **{name: PAYER}) for name in ("total_amount", "gmt_payment")]
    bodies = [test_alipay_notifications.signed(platform, form) for form in forms]
    for body in (*bodies, PAYER.encode()):
        without_payer(lambda body=body: test_alipay_notifications.read(alipay, body), NotificationMalformed)


def test_an_answer_that_is_no_json_or_no_http(stripe: Any, wechat: WeChatPay, company: Company) -> None:
    company.answer = stripe_says(f'{{"data": [{{"receipt_email": "{PAYER}"}}'.encode())
    without_payer(lambda: stripe.query(out_trade_no=NUMBER))
    # the rest of somebody else's answer may stand where an answer begins
    company.answer = lambda _: (200, {f"X {PAYER}": "x"}, b"")
    without_payer(lambda: wechat.query(out_trade_no=NUMBER))
