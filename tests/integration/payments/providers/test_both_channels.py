"""What every channel promises beside its certificate, and the sandbox's own strictness; over real HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from idempotency.ids import new_id
from payments.errors import ProviderRejected, ProviderUnavailable
from payments.providers import registry
from payments.providers.base import Provider, TradeStatus
from tests.integration.payments.providers.conftest import opened, refund
from tests.sandbox import Sandbox


def test_a_refund_of_nothing_paid_is_refused(provider: Provider, number: str) -> None:
    with pytest.raises(ProviderRejected):
        refund(provider, number, new_id().hex, 100)


def test_an_expired_trade_cannot_be_paid(provider: Provider, sandbox: Sandbox, number: str) -> None:
    opened(provider, number, expires_at=datetime.now(UTC) - timedelta(seconds=5))
    if provider.channel == "stripe":  # whose intents wait until somebody cancels them
        assert provider.query(out_trade_no=number).status is TradeStatus.PENDING
        provider.close(out_trade_no=number)
    assert sandbox.http.post("/_control/pay", json={"out_trade_no": number}).status_code == 409
    assert provider.query(out_trade_no=number).status is TradeStatus.CLOSED


def test_the_same_number_with_another_amount_is_refused(sandbox: Sandbox, number: str) -> None:
    wechat: Any = registry.build(sandbox.channels())["wechat"]
    opened(wechat, number)
    with pytest.raises(ProviderRejected, match="OUT_TRADE_NO_USED"):
        opened(wechat, number, amount_minor=1)
    sandbox.pay(number)
    with pytest.raises(ProviderRejected, match="ORDERPAID"):
        opened(wechat, number)


@pytest.mark.parametrize(
    "faults",
    [
        *([], {"unknown": 1}, {"drop_rate": 2}, {"duplicates": -1}, {"delay_ms": "soon"}, {"parallel": None}),
        *({name: 2, "drop_rate": 1} for name in ("wrong_seller", "pay_closed", "hold_answers")),
    ],
)
def test_control_refuses_what_it_does_not_know(sandbox: Sandbox, faults: Any) -> None:
    before = sandbox.faults()
    assert sandbox.http.post("/_control/faults", json=faults).status_code == 400
    assert sandbox.faults() == before


def test_control_pay_of_an_unknown_number_is_404(sandbox: Sandbox) -> None:
    assert sandbox.http.post("/_control/pay", json={"out_trade_no": "nobody"}).status_code == 404
    assert sandbox.http.post("/_control/pay", content=b"{").status_code == 400


def test_a_forged_request_is_refused_by_the_sandbox(sandbox: Sandbox, number: str) -> None:
    """The other side really verifies: our clients with a key that is not the merchant's get nothing done."""
    channels = sandbox.channels()
    channels["wechat"]["MCH_KEY_FILE"] = channels["alipay"]["APP_KEY_FILE"]
    channels["alipay"]["APP_KEY_FILE"] = sandbox.channels()["wechat"]["MCH_KEY_FILE"]
    channels["stripe"]["SECRET_KEY"] = "sk_test_of_somebody_else"
    for provider in registry.build(channels).values():
        with pytest.raises(ProviderUnavailable, match=r"SIGN_ERROR|isv.invalid-signature|Invalid API Key"):
            provider.query(out_trade_no=number)
