"""What every channel promises, driven over real HTTP with real signatures against the sandbox."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers import registry
from payments.providers.base import FactKind, NextAction, Provider, RefundStatus, TradeStatus
from tests.integration.payments.providers.conftest import Listener
from tests.ports import free_port
from tests.sandbox import Sandbox


def opened(provider: Provider, number: str, *, amount_minor: int = 1990, **more: Any) -> NextAction:
    """A trade that exists at the provider; for Alipay the shopper has to arrive first."""
    wanted = {
        "out_trade_no": number,
        "amount_minor": amount_minor,
        "currency": "CNY",
        "description": "杯子 & {more}",
        "notify_url": "http://127.0.0.1:1/notify",
        "return_url": "http://127.0.0.1:1/back",
        "expires_at": datetime.now(UTC) + timedelta(minutes=30),
        **more,
    }
    action = provider.create(**wanted)
    if action.url.startswith("http"):
        httpx.get(action.url, follow_redirects=True, trust_env=False).raise_for_status()
    return action


def refund(provider: Provider, number: str, refund_number: str, amount_minor: int) -> Any:
    return provider.refund(
        out_trade_no=number,
        out_refund_no=refund_number,
        amount_minor=amount_minor,
        paid_minor=1990,
        currency="CNY",
        reason="changed mind",
        notify_url="http://127.0.0.1:1/notify",
    )


@pytest.fixture
def number() -> str:
    return new_id().hex


def test_from_unknown_over_pending_to_paid(provider: Provider, sandbox: Sandbox, number: str) -> None:
    assert provider.query(out_trade_no=number).status is TradeStatus.NOT_FOUND
    opened(provider, number)
    assert provider.query(out_trade_no=number).status is TradeStatus.PENDING
    sandbox.pay(number)
    trade = provider.query(out_trade_no=number)
    (fact,) = trade.facts
    assert trade.status is TradeStatus.PAID
    assert (fact.kind, fact.channel, fact.merchant) == (FactKind.PAID, provider.channel, provider.merchant)
    assert (fact.out_trade_no, fact.amount_minor, fact.currency) == (number, 1990, "CNY")
    assert fact.occurred_at is not None
    assert fact.occurred_at.tzinfo is not None


def test_creating_again_is_the_same_trade(provider: Provider, sandbox: Sandbox, number: str) -> None:
    first, again = opened(provider, number), opened(provider, number)
    assert first.type is again.type
    if provider.channel == "wechat":
        assert first.url == again.url
    sandbox.pay(number)
    sandbox.pay(number)
    assert sandbox.charges()[number]["charged_minor"] == 1990


def test_closing_an_unpaid_trade_and_one_that_is_unknown(
    provider: Provider, sandbox: Sandbox, number: str
) -> None:
    assert provider.close(out_trade_no=number).status is TradeStatus.CLOSED
    opened(provider, number)
    for _ in range(2):
        closed = provider.close(out_trade_no=number)
        assert (closed.status, closed.facts[0].kind) == (TradeStatus.CLOSED, FactKind.CLOSED)
    assert provider.query(out_trade_no=number).status is TradeStatus.CLOSED
    assert sandbox.http.post("/_control/pay", json={"out_trade_no": number}).status_code == 409


def test_closing_a_paid_trade_tells_that_it_is_paid(provider: Provider, sandbox: Sandbox, number: str) -> None:
    opened(provider, number)
    sandbox.pay(number)
    closed = provider.close(out_trade_no=number)
    assert (closed.status, closed.facts[0].kind) == (TradeStatus.PAID, FactKind.PAID)


def test_refunds_in_parts_and_never_twice(provider: Provider, sandbox: Sandbox, number: str) -> None:
    opened(provider, number)
    sandbox.pay(number)
    one, two = new_id().hex, new_id().hex
    assert provider.query_refund(out_trade_no=number, out_refund_no=one).status is RefundStatus.NOT_FOUND
    first, again = refund(provider, number, one, 990), refund(provider, number, one, 990)
    assert first == again
    (fact,) = first.facts
    assert (fact.kind, fact.amount_minor, fact.out_refund_no, fact.paid_minor) == (
        FactKind.REFUNDED,
        990,
        one,
        1990,
    )
    assert provider.query_refund(out_trade_no=number, out_refund_no=one).facts == first.facts
    with pytest.raises(ProviderRejected):
        refund(provider, number, two, 1001)
    assert refund(provider, number, new_id().hex, 1000).status is RefundStatus.SUCCEEDED
    assert sandbox.charges()[number]["refunded_minor"] == 1990
    assert provider.query(out_trade_no=number).status is TradeStatus.PAID  # refunded, hence paid


def test_a_refund_of_nothing_paid_is_refused(provider: Provider, number: str) -> None:
    with pytest.raises(ProviderRejected):
        refund(provider, number, new_id().hex, 100)


def test_an_answer_that_never_comes_is_unknown_and_a_question_tells(
    provider: Provider, sandbox: Sandbox, number: str
) -> None:
    opened(provider, number)
    sandbox.pay(number)
    number_of_refund = new_id().hex
    sandbox.faults(timeout_after_success=1)
    with pytest.raises(OutcomeUnknown):
        refund(provider, number, number_of_refund, 500)
    assert sandbox.faults()["timeout_after_success"] == 0
    told = provider.query_refund(out_trade_no=number, out_refund_no=number_of_refund)
    assert told.status is RefundStatus.SUCCEEDED
    assert sandbox.charges()[number]["refunded_minor"] == 500


def test_a_server_error_is_unknown(provider: Provider, sandbox: Sandbox, number: str) -> None:
    sandbox.faults(http_500_rate=1)
    with pytest.raises(OutcomeUnknown):
        provider.query(out_trade_no=number)


def test_nobody_there_is_unavailable(sandbox: Sandbox, number: str) -> None:
    channels = sandbox.channels()
    nowhere = f"http://127.0.0.1:{free_port()}"
    channels["wechat"]["API_URL"] = nowhere
    channels["alipay"]["GATEWAY_URL"] = nowhere
    channels["stripe"]["API_URL"] = nowhere
    for provider in registry.build(channels).values():
        with pytest.raises(ProviderUnavailable):
            provider.query(out_trade_no=number)


def test_copies_of_a_notification_carry_one_id_and_one_fact(
    provider: Provider, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    sandbox.faults(duplicates=3, parallel=3)
    opened(provider, number, notify_url=listener.url)
    sandbox.pay(number)
    notices = []
    for _ in range(3):
        headers, body = listener.next()
        notices.append(provider.read_notification(headers=headers, body=body, now=datetime.now(UTC)))
    assert notices[0] == notices[1] == notices[2]
    assert notices[0].facts == provider.query(out_trade_no=number).facts


def test_a_refund_is_notified(provider: Provider, sandbox: Sandbox, listener: Listener, number: str) -> None:
    opened(provider, number, notify_url=listener.url)
    sandbox.pay(number)
    listener.next()
    refunded = refund(provider, number, new_id().hex, 1990)
    headers, body = listener.next()
    notice = provider.read_notification(headers=headers, body=body, now=datetime.now(UTC))
    if provider.channel == "wechat":
        assert notice.facts == refunded.facts
    elif provider.channel == "stripe":  # an event has the refund alone, not the payment that it is of
        assert notice.facts == (replace(refunded.facts[0], paid_minor=None),)
    else:  # Alipay's has the sum of refunds: here all of it, so the trade is closed, and that all went back
        paid, back = notice.facts
        assert (paid.kind, back.kind, back.amount_minor, back.is_whole) == (
            FactKind.PAID,
            FactKind.REFUNDED,
            1990,
            True,
        )


def test_a_lost_notification_never_comes_but_a_question_tells(
    provider: Provider, sandbox: Sandbox, listener: Listener, number: str
) -> None:
    sandbox.faults(drop_rate=1)
    opened(provider, number, notify_url=listener.url)
    sandbox.pay(number)
    sandbox.reset_faults()
    other = new_id().hex
    opened(provider, other, notify_url=listener.url)
    sandbox.pay(other)
    headers, body = listener.next()  # the first that comes is the second one's
    notice = provider.read_notification(headers=headers, body=body, now=datetime.now(UTC))
    assert notice.facts[0].out_trade_no == other
    assert provider.query(out_trade_no=number).status is TradeStatus.PAID


def test_a_wrong_amount_is_told_as_it_is(provider: Provider, sandbox: Sandbox, number: str) -> None:
    opened(provider, number)
    sandbox.faults(wrong_amount=True)
    assert sandbox.pay(number)["charged_minor"] == 2090
    assert provider.query(out_trade_no=number).facts[0].amount_minor == 2090


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
    wechat._http.close()


@pytest.mark.parametrize(
    "faults", [{"unknown": 1}, {"drop_rate": 2}, {"duplicates": -1}, {"delay_ms": "soon"}, {"parallel": None}, []]
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
        provider._http.close()  # type: ignore[attr-defined]
