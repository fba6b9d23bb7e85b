"""Documents of providers: taking a member out, and what is raised where they are not of their shape. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

# whatever a genuine document of a shape that nobody documented makes the readers of facts raise
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, RecursionError)


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


def in_utc(moment: datetime) -> datetime:
    """The same moment. Raises ValueError for one without a zone, or one that UTC's calendar has no day for."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a time before the first year or after the last") from error
