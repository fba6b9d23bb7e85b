"""Documents of providers: taking a member out, and what is raised where they are not of their shape. Pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

CHINA = timezone(timedelta(hours=8))
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"  # of Alipay, and of WeChat's bill; China's, which they do not say

# whatever a genuine document of a shape that nobody documented makes the readers of facts raise
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, RecursionError)

_UNKEEPABLE = re.compile(r"[\x00\ud800-\udfff]")


def is_keepable(value: Any, *, most: int) -> bool:
    """Whether `value` is a text that a column of `most` characters can hold.

    PostgreSQL's cannot hold NUL, nor half of a surrogate pair, which JSON can spell.
    """
    return isinstance(value, str) and len(value) <= most and not _UNKEEPABLE.search(value)


def text_of(document: Mapping[str, Any], name: str) -> str:
    """Member `name`, which must be there.

    Raises:
        KeyError: it is not.
        ValueError: it is empty or no text.
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
    """The same moment. Raises ValueError for one without a zone, or one that UTC's calendar has no day for."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a time before the first year or after the last") from error


def china_time(text: str) -> datetime:
    """A time in `TIME_FORMAT`, as `in_utc`. Raises ValueError if it is none."""
    return in_utc(datetime.strptime(text, TIME_FORMAT).replace(tzinfo=CHINA))
