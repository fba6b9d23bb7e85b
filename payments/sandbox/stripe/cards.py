"""Stripe's test cards: what each does, and what the shopper reads.

Source: the test cards of docs.stripe.com/testing and the codes of docs.stripe.com/declines/codes, as public
integrations and excerpts cite them (2026-11-25). The sentences are our own.
"""

import re

from payments.sandbox import state

# number -> (code of the refusal, what it is for)
_CARDS = {
    "4242424242424242": ("", "Paid"),
    "4000000000000002": ("generic_decline", "Declined"),
    "4000000000009995": ("insufficient_funds", "Insufficient funds"),
}
TRY_AGAIN = "Nothing was charged; try again, or go back and choose another way."
SENTENCES = {
    "generic_decline": f"The bank declined it. {TRY_AGAIN}",
    "insufficient_funds": f"There is not enough money on this card. {TRY_AGAIN}",
    "no_test_card": "Only these test cards work here. Nothing was charged.",
}


def choices() -> list[dict[str, str]]:
    return [{"number": shown(number), "effect": effect} for number, (_, effect) in _CARDS.items()]


def shown(number: str) -> str:
    """Write a test card's number in groups of four; the first card's for any other number."""
    digits = _digits(number) if _digits(number) in _CARDS else next(iter(_CARDS))
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def refusal(number: str) -> str:
    """Return why the card is not charged, a key of `SENTENCES`; empty: charge it."""
    return _CARDS.get(_digits(number), ("no_test_card", ""))[0]


def record(transaction_id: str, number: str) -> None:
    """Record the last four digits of the intent's card; a second press changes nothing."""
    with state.store().write() as connection:
        connection.execute(
            "UPDATE objects SET kept = json_insert(kept, '$.card', ?) WHERE id = ?",
            [_digits(number)[-4:], transaction_id],
        )


def _digits(number: str) -> str:
    return re.sub(r"[\s-]", "", number)
