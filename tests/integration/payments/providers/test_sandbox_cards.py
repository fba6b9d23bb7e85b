"""The card form on Stripe's page: test cards do what Stripe says of them."""

from typing import Any

from payments.providers.base import TradeStatus
from payments.providers.stripe.client import StripeIntents
from tests.integration.payments.providers.conftest import opened, waiting
from tests.integration.payments.providers.test_stripe_intents import stripe
from tests.sandbox import Sandbox

__all__ = ["stripe"]

PAID, DECLINED = "4242424242424242", "4000000000000002"


def press(sandbox: Sandbox, trade: str, card: str = PAID) -> str:
    answer = sandbox.http.post(f"/pay/{trade}", data={"number": card})
    if "/back" in answer.headers["Location"]:
        return "back in the shop"
    return sandbox.http.get(answer.headers["Location"]).text


REFUSED = (
    (DECLINED, "The bank declined it."),
    ("4000 0000 0000 9995", "There is not enough money on this card."),
    ("5555-5555-5555-4444", "Only these test cards work here."),
    ("", "Only these test cards work here."),
)


def test_refused_cards_charge_nothing_and_a_test_card_pays_once(
    stripe: StripeIntents, sandbox: Sandbox, number: str
) -> None:
    intent_id = opened(stripe, number).reference
    for asked, shown in ((DECLINED, "4000 0000 0000 0002"), ("5555555555554444", "4242 4242 4242 4242")):
        page = sandbox.http.get(f"/pay/{number}", params={"card": asked})
        assert f'name="number" value="{shown}"' in page.text
    policy = page.headers["Content-Security-Policy"]
    assert ("default-src 'none'" in policy, "unsafe" in policy) == (True, False)  # no page runs a script
    for card, sentence in REFUSED:
        following = press(sandbox, number, card)
        assert (sentence in following, 'name="number"' in following) == (True, True)
    assert sandbox.charges()[number]["charged_minor"] == 0
    assert stripe.query(out_trade_no=number).status is TradeStatus.PENDING
    for _ in range(2):
        assert press(sandbox, number) == "back in the shop"
    key = sandbox.keys.settings["STRIPE_SECRET_KEY"]
    address = f"/stripe/v1/payment_intents/{intent_id}?expand[]=latest_charge"
    found: Any = sandbox.http.get(address, auth=(key, "")).json()
    paid_with = found["latest_charge"]["payment_method_details"]
    assert (found["amount_received"], paid_with["type"], paid_with["card"]["last4"]) == (1990, "card", "4242")
    assert stripe.query(out_trade_no=number).status is TradeStatus.PAID
    assert 'name="number"' not in sandbox.http.get(f"/pay/{waiting(sandbox)}").text
