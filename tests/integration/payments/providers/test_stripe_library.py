"""Stripe's own library, as anybody would use it, agrees with the sandbox; and the sandbox is as strict as Stripe."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
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


def number_of(sandbox: Sandbox, intent: Any) -> str:
    """What the sandbox calls it; a merchant that sends no number has Stripe's."""
    assert intent.id in sandbox.charges()
    return str(intent.id)


def test_create_pay_list_refund_and_balance(client: Any, sandbox: Sandbox) -> None:
    intent = client.payment_intents.create({**WANTED, "metadata": {"colour": "red", "n": "1"}})
    assert (intent.status, intent.next_action.type) == ("requires_action", "alipay_handle_redirect")
    assert "¥19.90" in httpx.get(intent.next_action.alipay_handle_redirect.url, trust_env=False).text
    sandbox.pay(number_of(sandbox, intent))
    paid = client.payment_intents.retrieve(intent.id, {"expand": ["latest_charge"]})
    assert (paid.status, paid.amount_received, paid.latest_charge.amount) == ("succeeded", 1990, 1990)
    assert paid.metadata["colour"] == "red"
    refund = client.refunds.create({"payment_intent": intent.id, "amount": 990})
    assert client.refunds.retrieve(refund.id).amount == 990
    rest = client.refunds.create({"payment_intent": intent.id})
    assert (rest.amount, rest.status) == (1000, "succeeded")
    assert [one.id for one in client.refunds.list({"payment_intent": intent.id}).auto_paging_iter()] == [
        rest.id,
        refund.id,
    ]
    moved = client.balance_transactions.list({"limit": 2, "expand": ["data.source"]}).auto_paging_iter()
    ours = [entry for entry in moved if entry.source.payment_intent == intent.id]
    assert sorted((entry.type, entry.amount) for entry in ours) == [
        ("payment", 1990),
        ("payment_refund", -1000),
        ("payment_refund", -990),
    ]


def test_an_event_is_verified_by_the_library(client: Any, sandbox: Sandbox, listener: Listener) -> None:
    intent = client.payment_intents.create({**WANTED, "metadata": {"notify_url": listener.url}})
    sandbox.pay(number_of(sandbox, intent))
    headers, body = listener.next()
    secret = sandbox.keys.settings["STRIPE_WEBHOOK_SECRET"]
    event = stripe.Webhook.construct_event(body, headers["Stripe-Signature"], secret, api_key="sk_test_unused")
    assert (event.type, event.data.object.id) == ("payment_intent.succeeded", intent.id)
    with pytest.raises(stripe.SignatureVerificationError):
        stripe.Webhook.construct_event(body, headers["Stripe-Signature"], "whsec_no", api_key="sk_test_unused")


def test_pages_of_a_list_within_a_window(client: Any) -> None:
    made = [client.payment_intents.create(WANTED) for _ in range(3)]
    window = {"gte": made[0].created, "lte": made[-1].created}
    listed = [one.id for one in client.payment_intents.list({"limit": 1, "created": window}).auto_paging_iter()]
    assert {one.id for one in made} <= set(listed)
    assert len(set(listed)) == len(listed)
    assert client.payment_intents.list({"created": {"lt": 1_000_000_000}}).data == []


def test_canceled_once_and_nothing_after_it(client: Any, sandbox: Sandbox) -> None:
    intent = client.payment_intents.create(WANTED)
    assert client.payment_intents.cancel(intent.id).status == "canceled"
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.payment_intents.cancel(intent.id)
    assert refused.value.code == "payment_intent_unexpected_state"
    assert sandbox.http.post("/_control/pay", json={"out_trade_no": intent.id}).status_code == 409
    with pytest.raises(stripe.InvalidRequestError, match="successful charge"):
        client.refunds.create({"payment_intent": intent.id})


def test_a_key_used_again(client: Any, sandbox: Sandbox) -> None:
    options = {"idempotency_key": "a-key-of-this-test"}
    first = client.payment_intents.create(WANTED, options)
    again = client.payment_intents.create(WANTED, options)
    assert (again.id, again.last_response.headers["Idempotent-Replayed"]) == (first.id, "true")
    with pytest.raises(stripe.IdempotencyError):
        client.payment_intents.create({**WANTED, "amount": 1}, options)
    assert client.payment_intents.create(WANTED).id != first.id


def test_refunds_stay_within_the_charge(client: Any, sandbox: Sandbox) -> None:
    intent = client.payment_intents.create(WANTED)
    sandbox.pay(number_of(sandbox, intent))
    with pytest.raises(stripe.InvalidRequestError, match="greater than unrefunded"):
        client.refunds.create({"payment_intent": intent.id, "amount": 1991})
    client.refunds.create({"payment_intent": intent.id})
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.refunds.create({"payment_intent": intent.id})
    assert refused.value.code == "charge_already_refunded"
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.payment_intents.cancel(intent.id)
    assert refused.value.code == "payment_intent_unexpected_state"


@pytest.mark.parametrize(
    "changed",
    [
        {"amount": 0},
        {"amount": "much"},
        {"currency": "CNY"},
        {"return_url": "/relative"},
        {"payment_method_data": {"type": "card"}},
        {"payment_method_types": ["wechat_pay"], "payment_method_data": {"type": "wechat_pay"}},
    ],
)
def test_what_is_no_intent_uses_up_no_key(client: Any, changed: dict[str, Any]) -> None:
    options = {"idempotency_key": f"a-key-for-{json.dumps(changed)}"}
    with pytest.raises(stripe.InvalidRequestError):
        client.payment_intents.create({**WANTED, **changed}, options)
    assert client.payment_intents.create(WANTED, options).status == "requires_action"


def test_only_the_account_gets_an_answer(sandbox: Sandbox) -> None:
    key = sandbox.keys.settings["STRIPE_SECRET_KEY"]

    def status(**more: Any) -> int:
        return sandbox.http.get("/stripe/v1/payment_intents", **more).status_code

    assert status() == 401
    assert status(headers={"Authorization": "Bearer sk_test_no"}) == 401
    assert status(headers={"Authorization": f"Bearer {key}"}) == 200
    assert status(auth=(key, "")) == 200
    assert status(headers={"Authorization": "Basic é".encode()}) == 401


@pytest.mark.parametrize(
    "path",
    ["payment_intents/pi_no", "refunds/re_no", "refunds?payment_intent=pi_no"],
)
def test_what_is_not_there_is_missing(sandbox: Sandbox, path: str) -> None:
    key = sandbox.keys.settings["STRIPE_SECRET_KEY"]
    answer = sandbox.http.get(f"/stripe/v1/{path}", headers={"Authorization": f"Bearer {key}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "resource_missing")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "created[about]=1", "starting_after=pi_no", "created=1", "a=1&a[b]=2"],
)
def test_a_question_that_makes_no_sense(sandbox: Sandbox, query: str) -> None:
    key = sandbox.keys.settings["STRIPE_SECRET_KEY"]
    answer = sandbox.http.get(f"/stripe/v1/payment_intents?{query}", headers={"Authorization": f"Bearer {key}"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
