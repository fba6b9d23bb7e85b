"""Members, times and texts of providers' documents. Pure."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Any

from payments.errors import OutcomeUnknown

CHINA = timezone(timedelta(hours=8))
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"  # China's time, which providers there do not say

# errors of the fact readers for a genuine document of an undocumented shape; `SyntaxError` is that of XML
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)

NUMBER_MAX = 64  # characters of a provider's number, or ours, in our columns
AMOUNT_MAX = 2**63 - 1

_NUMBERS = ("merchant", "out_trade_no", "provider_txn_id", "out_refund_no", "paid_txn_id")
_UNKEEPABLE = re.compile(r"[\x00\ud800-\udfff]")


def is_keepable(value: Any, *, most: int) -> bool:
    """Check that `value` is a text that a column of `most` characters can hold.

    PostgreSQL holds neither NUL nor half of a surrogate pair, which JSON can spell.
    """
    return isinstance(value, str) and len(value) <= most and not _UNKEEPABLE.search(value)


def must_be_storable(stated: Any, *, most: int = NUMBER_MAX) -> None:
    """Require a `Fact` or a `BillLine` that our columns can hold.

    Args:
        most: characters of each of its texts.

    Raises:
        OutcomeUnknown: naming the member that is not.
    """
    when, paid_minor = stated.occurred_at, getattr(stated, "paid_minor", None)
    amounts = {"amount_minor": stated.amount_minor, "paid_minor": 0 if paid_minor is None else paid_minor}
    fits = {name: is_keepable(getattr(stated, name, ""), most=most) for name in _NUMBERS}
    fits |= {name: type(amount) is int and 0 <= amount <= AMOUNT_MAX for name, amount in amounts.items()}
    fits["currency"] = is_keepable(stated.currency, most=3)
    fits["occurred_at"] = when is None or (isinstance(when, datetime) and when.tzinfo is not None)
    for name, is_fit in fits.items():
        if not is_fit:
            raise OutcomeUnknown(f"the {name} that it states cannot be stored")


def text_of(document: Mapping[str, Any], name: str) -> str:
    """Return the member `name`, a text.

    Raises:
        KeyError: missing.
        ValueError: empty, or no text.
    """
    value = document[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is not a text")
    return value


def amount_of(document: Mapping[str, Any], name: str) -> int:
    """Return the amount `name` in minor units.

    Raises:
        KeyError: missing.
        ValueError: not an integer, or below zero.
    """
    value = document[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is not an amount")
    return value


def in_utc(moment: datetime) -> datetime:
    """Convert to UTC. Raises ValueError for a time without a zone, or outside UTC's calendar."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a time before the first year or after the last") from error


def china_time(text: str) -> datetime:
    """Parse a time in `TIME_FORMAT` and convert to UTC. Raises ValueError if it is none."""
    return in_utc(datetime.strptime(text, TIME_FORMAT).replace(tzinfo=CHINA))


def next_day(day: date, at: time, zone: tzinfo = CHINA) -> float:
    """Return the time `at` of the day after `day` in `zone`, as seconds since the epoch."""
    return datetime.combine(day + timedelta(days=1), at, zone).timestamp()
