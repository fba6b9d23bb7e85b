"""The card form on Stripe's page: a test card does what Stripe says of it, and a declined one leaves the page open."""

import re
from typing import Any

import pytest

from payments.providers.base import TradeStatus
from payments.providers.stripe.client import StripeIntents
from tests.integration.payments.providers.conftest import opened, waiting
from tests.integration.payments.providers.test_stripe_intents import stripe
from tests.sandbox import Sandbox

__all__ = ["stripe"]

PAID, DECLINED, ASKS, ASKS_THEN_DECLINED = (
    "4242424242424242",
    "4000000000000002",
    "4000002500003155",
    "4000008400001629",
)


def press(sandbox: Sandbox, trade: str, card: str = PAID, **changed: str) -> str:
    """Return the page that follows the form."""
    fields = {"number": card, "expiry": "12 / 34", "cvc": "123", **changed}
    answer = sandbox.http.post(f"/pay/{trade}", data=fields)
    if answer.is_redirect and "/back" in answer.headers["Location"]:
        return "back in the shop"
    return sandbox.http.get(answer.headers["Location"]).text if answer.is_redirect else answer.text


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"card": DECLINED}, "The bank declined it."),
    ({"card": "4000 0000 0000 9995"}, "There is not enough money on this card."),
    ({"card": "4000-0000-0000-0069"}, "This card has expired."),
    ({"card": "4000000000000127"}, "The security code is wrong."),
    ({"card": "4000000000000119"}, "The bank could not be reached."),
    ({"card": "4242424242424241"}, "This is not a card number."),
    ({"card": ""}, "This is not a card number."),
    ({"card": "5555555555554444"}, "only test cards work here"),
    ({"expiry": "10 / 26"}, "This card has expired."),
    ({"expiry": "13/34"}, "The expiry date is written as MM / YY."),
    ({"cvc": "12"}, "The security code has three digits."),
]


def test_refused_cards_charge_nothing_and_another_one_pays_once(
    stripe: StripeIntents, sandbox: Sandbox, number: str
) -> None:
    intent_id = opened(stripe, number).reference
    for changed, sentence in REFUSED:
        page = press(sandbox, number, **{"card": PAID, **changed})
        assert (sentence in page, 'name="number"' in page) == (True, True)
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


@pytest.mark.parametrize(
    ("card", "says", "follows", "charged"),
    [
        (ASKS, "yes", "back in the shop", 1990),
        (ASKS, "no", "The bank did not confirm that it is you.", 0),
        (ASKS_THEN_DECLINED, "yes", "The bank declined it.", 0),
    ],
)
def test_the_bank_asks_first(
    stripe: StripeIntents, sandbox: Sandbox, number: str, card: str, says: str, follows: str, charged: int
) -> None:
    opened(stripe, number)
    asked = press(sandbox, number, card)
    assert "Your bank asks" in asked
    assert sandbox.charges()[number]["charged_minor"] == 0
    carried = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]+)"', asked))
    assert follows in press(sandbox, number, confirmed=says, card=carried.pop("number"), **carried)
    assert sandbox.charges()[number]["charged_minor"] == charged


def test_only_a_test_card_can_fill_the_form_and_no_page_runs_a_script(
    stripe: StripeIntents, sandbox: Sandbox, number: str
) -> None:
    opened(stripe, number)
    for asked, shown in ((ASKS, "4000 0025 0000 3155"), ("5555555555554444", "4242 4242 4242 4242")):
        page = sandbox.http.get(f"/pay/{number}", params={"card": asked})
        assert f'name="number" value="{shown}"' in page.text
    policy = page.headers["Content-Security-Policy"]
    assert ("default-src 'none'" in policy, "unsafe" in policy) == (True, False)
    assert 'name="number"' not in sandbox.http.get(f"/pay/{waiting(sandbox)}").text
