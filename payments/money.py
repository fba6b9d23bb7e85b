"""Integer minor units, and the decimal strings that some providers want instead. Pure."""

import re
from collections.abc import Mapping
from decimal import Decimal

# Digits after the point, of the currencies that we sell in; which of them a channel takes, it says itself.
# Source: ISO 4217, list one (read 2026-11).
EXPONENTS = {
    **dict.fromkeys(("AUD", "CAD", "CHF", "CNY", "EUR", "GBP", "HKD", "SGD", "TWD", "USD"), 2),
    **dict.fromkeys(("JPY", "KRW"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}

_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?")


def is_above(limits: Mapping[str, int], amount_minor: int, currency: str) -> bool:
    """Return whether an amount is larger than its currency's limit; without one it never is."""
    return currency in limits and amount_minor > limits[currency]


def to_decimal(amount_minor: int, currency: str) -> str:
    """Convert minor units, with all the currency's places: `1990, "CNY"` -> `"19.90"`.

    Raises:
        ValueError: a negative amount or a currency that we do not know.
    """
    exponent = _exponent(currency)
    if amount_minor < 0:
        raise ValueError(f"an amount cannot be negative: {amount_minor}")
    return f"{Decimal(amount_minor).scaleb(-exponent):.{exponent}f}"


def from_decimal(text: str, currency: str) -> int:
    """Convert a decimal, exact however long, never through a float: `"19.90", "CNY"` -> `1990`.

    Raises:
        ValueError: not a plain decimal number, or finer than the currency's minor unit.
    """
    exponent = _exponent(currency)
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise ValueError(f"not an amount of money: {text!r}")
    places = found[2] or ""
    if places[exponent:].strip("0"):
        raise ValueError(f"{text!r} is finer than {currency} has places")
    return int(found[1] + places[:exponent].ljust(exponent, "0"))


def minor(amount: object) -> int:
    """Return an amount to pay or refund as it is.

    Raises:
        TypeError: no int. A decimal would be in another unit, and cut to a whole number.
        ValueError: not above zero.
    """
    if not isinstance(amount, int) or isinstance(amount, bool):
        raise TypeError(f"An amount is an int in minor units, not {amount!r}.")
    if amount < 1:
        raise ValueError(f"An amount is above zero, in minor units, not {amount!r}.")
    return amount


def _exponent(currency: str) -> int:
    try:
        return EXPONENTS[currency]
    except KeyError:
        raise ValueError(f"unknown currency {currency!r}") from None
