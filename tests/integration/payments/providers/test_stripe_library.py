"""Stripe's own library agrees with the sandbox, which is as strict as Stripe."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stripe

from tests.integration.payments.providers.conftest import Listener
from tests.sandbox import Sandbox

WANTED: dict[str, Any] = {
    "amount": 1990,
    "currency": "cny",
    "payment_method_types": ["alipay"],
    "payment_method_data": {"type": "alipay"},
    "confirm": True,
    "return_url": "http://127.0.0.1:1/back",
}


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[Any]:
    """The library over its own choice of HTTP client, which is `requests`."""
    http = stripe.RequestsClient(timeout=20)
    made: Any = stripe.StripeClient(
        sandbox.keys.settings["STRIPE_SECRET_KEY"],
        base_addresses={"api": f"{sandbox.url}/stripe"},
        http_client=http,
        max_network_retries=0,
    )
    yield made.v1
    http.close()


def test_an_event_is_verified_by_the_library(client: Any, sandbox: Sandbox, listener: Listener) -> None:
    intent = client.payment_intents.create({**WANTED, "metadata": {"notify_url": listener.url}})
    sandbox.pay(intent.id)
    headers, body = listener.next()
    secret = sandbox.keys.settings["STRIPE_WEBHOOK_SECRET"]
    event = stripe.Webhook.construct_event(body, headers["Stripe-Signature"], secret, api_key="sk_test_unused")
    assert (event.type, event.data.object.id) == ("payment_intent.succeeded", intent.id)
    with pytest.raises(stripe.SignatureVerificationError):
        stripe.Webhook.construct_event(body, headers["Stripe-Signature"], "whsec_no", api_key="sk_test_unused")


def test_a_key_used_again(client: Any) -> None:
    options = {"idempotency_key": "a-key-of-this-test"}
    for mistake in (
        {"amount": 0},
        {"currency": "CNY"},
        {"return_url": "/relative"},
        {"payment_method_data": {"type": "card"}},
    ):
        with pytest.raises(stripe.InvalidRequestError):  # which uses up no key
            client.payment_intents.create({**WANTED, **mistake}, options)
    first = client.payment_intents.create(WANTED, options)
    again = client.payment_intents.create(WANTED, options)
    assert (again.id, again.last_response.headers["Idempotent-Replayed"]) == (first.id, "true")
    with pytest.raises(stripe.IdempotencyError):
        client.payment_intents.create({**WANTED, "amount": 1}, options)
    assert client.payment_intents.create(WANTED).id != first.id


def test_what_money_does_not_do(client: Any, sandbox: Sandbox) -> None:
    def refused(call: Callable[..., Any], *given: Any) -> str:
        with pytest.raises(stripe.InvalidRequestError) as caught:
            call(*given)
        return f"{caught.value.code}: {caught.value}"

    cancel, refund = client.payment_intents.cancel, client.refunds.create
    canceled, paid = (client.payment_intents.create(WANTED).id for _ in range(2))
    assert cancel(canceled).status == "canceled"
    assert "payment_intent_unexpected_state" in refused(cancel, canceled)
    assert sandbox.http.post("/_control/pay", json={"out_trade_no": canceled}).status_code == 409
    assert "successful charge" in refused(refund, {"payment_intent": canceled})
    sandbox.pay(paid)
    assert "greater than unrefunded" in refused(refund, {"payment_intent": paid, "amount": 1991})
    refund({"payment_intent": paid})
    assert "charge_already_refunded" in refused(refund, {"payment_intent": paid})
    assert "payment_intent_unexpected_state" in refused(cancel, paid)
