"""Stripe's test cards: what each does, and what the shopper reads.

Source: the test cards of docs.stripe.com/testing and the codes of docs.stripe.com/declines/codes, as public
integrations and excerpts cite them (2026-11-25). The sentences are our own.
"""

import re
from collections.abc import Mapping
from datetime import date

from payments.sandbox import state

AUTHENTICATE = "authentication_required"

# number -> (code of the refusal, asks the bank first, what it is for)
_CARDS = {
    "4242424242424242": ("", False, "Paid"),
    "4000000000000002": ("generic_decline", False, "Declined"),
    "4000000000009995": ("insufficient_funds", False, "Insufficient funds"),
    "4000000000000069": ("expired_card", False, "Expired"),
    "4000000000000127": ("incorrect_cvc", False, "Wrong security code"),
    "4000000000000119": ("processing_error", False, "Processing error"),
    "4000002500003155": ("", True, "3D Secure, then paid"),
    "4000008400001629": ("generic_decline", True, "3D Secure, then declined"),
}
_FIRST = next(iter(_CARDS))
TRY_AGAIN = "Nothing was charged; try again, or go back and choose another way."
SENTENCES = {
    "generic_decline": f"The bank declined it. {TRY_AGAIN}",
    "insufficient_funds": f"There is not enough money on this card. {TRY_AGAIN}",
    "expired_card": "This card has expired. Nothing was charged; use another card.",
    "incorrect_cvc": "The security code is wrong. Nothing was charged; check the code and try again.",
    "processing_error": "The bank could not be reached. Nothing was charged; try again in a moment.",
    "incorrect_number": "This is not a card number. Check it and try again.",
    "invalid_expiry": "The expiry date is written as MM / YY. Check it and try again.",
    "invalid_cvc": "The security code has three digits. Check it and try again.",
    "live_card": "This looks like a real card, and only test cards work here. Nothing was charged.",
    "authentication_failed": f"The bank did not confirm that it is you. {TRY_AGAIN}",
}


def choices() -> list[dict[str, str]]:
    return [{"number": shown(number), "effect": effect} for number, (_, _, effect) in _CARDS.items()]


def shown(number: str) -> str:
    """Write a test card's number in groups of four; the first card's for any other number."""
    number = _digits(number)
    return re.sub(r"(?<=\d)(?=(\d{4})+$)", " ", number if number in _CARDS else _FIRST)


def refusal(given: Mapping[str, str], *, today: date) -> str:
    """Return why the card is not charged, a key of `SENTENCES` or `AUTHENTICATE`; empty: charge it.

    Args:
        given: ``number``, ``expiry`` and ``cvc`` of the form, and of the bank's page ``confirmed``: yes or no.
    """
    number = _digits(given.get("number", ""))
    fault = _fault(number, given.get("expiry", "").strip(), given.get("cvc", "").strip(), today)
    if fault or number not in _CARDS:
        return fault or "live_card"
    code, asks_bank, _ = _CARDS[number]
    if asks_bank and given.get("confirmed") != "yes":
        return "authentication_failed" if "confirmed" in given else AUTHENTICATE
    return code


def _fault(number: str, expiry: str, cvc: str, today: date) -> str:
    """Return what is wrong with the form itself; empty: nothing."""
    until = re.fullmatch(r"(0?[1-9]|1[0-2])\s*/\s*(?:20)?(\d\d)", expiry)
    if not _checksum_holds(number):
        return "incorrect_number"
    if until is None:
        return "invalid_expiry"
    if not re.fullmatch(r"\d{3}", cvc):
        return "invalid_cvc"
    return "expired_card" if (2000 + int(until[2]), int(until[1])) < (today.year, today.month) else ""


def record(transaction_id: str, number: str) -> None:
    """Record the last four digits of the card that is charged with the intent; a second press changes nothing."""
    with state.store().write() as connection:
        connection.execute(
            "UPDATE objects SET kept = json_insert(kept, '$.card', ?) WHERE id = ?",
            [_digits(number)[-4:], transaction_id],
        )


def _digits(number: str) -> str:
    return re.sub(r"[\s-]", "", number)


def _checksum_holds(number: str) -> bool:
    """Check length and Luhn's sum."""
    if not re.fullmatch(r"\d{12,19}", number):
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(number)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0
