"""WeChat's ways to pay and its bills, over real HTTP against the sandbox."""

import re
from datetime import timedelta
from typing import Any

import httpx
import pytest

from payments.providers.actions import NextAction, NextActionType, Payer, PayMethod
from payments.providers.base import TradeStatus
from payments.providers.wechat.client import WeChatPay
from tests.integration.payments.providers.conftest import asked, towards
from tests.sandbox import Sandbox

SHOPPER = Payer(openid="oUpF8uMuAJO_M2pxb1Q9zNjWeS6o", client_ip="203.0.113.7")
BACK = "http://127.0.0.1:1/orders/1?paid=ü&x=1"


@pytest.fixture
def wechat(sandbox: Sandbox) -> WeChatPay:
    made: WeChatPay = towards(sandbox)["wechat"]
    return made


def opened(wechat: WeChatPay, number: str, method: PayMethod | None, **changed: Any) -> NextAction:
    wanted = {"description": "杯子, blue", "return_url": BACK, "method": method, "payer": SHOPPER}
    return asked(wechat, number, **{**wanted, **changed})


def test_a_phone_s_browser_pays_and_comes_back(wechat: WeChatPay, sandbox: Sandbox, number: str) -> None:
    action = opened(wechat, number, PayMethod.H5)
    assert (action.type, action.url.startswith(sandbox.url)) == (NextActionType.REDIRECT, True)
    page = httpx.get(action.url, follow_redirects=True, trust_env=False)
    assert (page.url.path, "杯子, blue" in page.text) == (f"/pay/{number}", True)
    paid = httpx.post(page.url, trust_env=False)
    assert (paid.status_code, paid.headers["Location"]) == (302, "http://127.0.0.1:1/orders/1?paid=%C3%BC&x=1")
    assert wechat.query(out_trade_no=number).status is TradeStatus.PAID


def test_a_link_runs_out_and_the_same_call_gives_a_fresh_one(wechat: WeChatPay, number: str) -> None:
    action = opened(wechat, number, PayMethod.H5)
    assert action.lives == timedelta(minutes=5)
    earlier = re.sub(r"prepay_id=wx\d{14}", "prepay_id=wx20261101000000", action.url)
    over = httpx.get(earlier, trust_env=False)
    assert (over.status_code, "This link is over" in over.text) == (410, True)
    again = opened(wechat, number, PayMethod.H5)
    assert httpx.get(again.url, trust_env=False).status_code == 302
