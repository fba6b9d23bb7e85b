"""Integer minor units, and the decimal strings that some providers want instead. Pure."""

import re
from collections.abc import Mapping
from decimal import Decimal

# Currencies by digits after the point; which of them a channel takes, it says itself.
# Source: ISO 4217, list one of 2026-01-01, without codes of funds and units of account.
_BY_PLACES = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF",
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP
        CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS
        INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN
        MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE
        SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR
        ZMW ZWG
    """,
    3: "BHD IQD JOD KWD LYD OMR TND",
}
EXPONENTS = {currency: places for places, currencies in _BY_PLACES.items() for currency in currencies.split()}

_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?")


def is_above(limits: Mapping[str, int], amount_minor: int, currency: str) -> bool:
    """Return whether an amount is larger than its currency's limit; without one it never is."""
    return currency in limits and amount_minor > limits[currency]


def to_decimal(amount_minor: int, currency: str) -> str:
    """Convert minor units, with all the currency's places: `1990, "CNY"` -> `"19.90"`.

    Raises:
        ValueError: a negative amount or no currency.
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
