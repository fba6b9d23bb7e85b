"""Checks of arguments: return the value, or raise a `ValueError` that names it."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction

T = TypeVar("T")

LONGEST_SECONDS = 1e9  # 31 years; PEXPIRE refuses too much, and by then a script has written the key
BIGINT_MAX = 2**63 - 1
NUMBER_MAX = 2**53 - 1  # a script's numbers are doubles


def bounded(name: str, seconds: float, *, or_zero: bool = False) -> float:
    """Return `seconds`, which must be above 0, or 0 where that is of use, and not too long."""
    try:
        if not isinstance(seconds, bool) and 0 <= seconds <= LONGEST_SECONDS and (or_zero or seconds > 0):
            return seconds if isinstance(seconds, int) else float(seconds)
    except (TypeError, ArithmeticError):  # no number, or a Decimal that is none
        pass
    least = "0 or above" if or_zero else "above 0"
    raise ValueError(f"{name} must be {least} and at most {LONGEST_SECONDS:.0f} (31 years), not {seconds!r}")


def leasing(lease_seconds: float | None) -> float | None:
    """Return how long a lease is; None is renewed."""
    return None if lease_seconds is None else bounded("lease_seconds", lease_seconds)


def waiting(wait_seconds: float | None) -> float | None:
    """Return how long to wait; 0 for not at all, as where less than nothing is left."""
    if wait_seconds is None:
        return None
    if isinstance(wait_seconds, (int, float)):
        wait_seconds = max(wait_seconds, 0)
    return bounded("wait_seconds (None: for ever)", wait_seconds, or_zero=True)


def lasting(name: str, seconds: float | None) -> float | None:
    """Return how long an entry lasts, infinite for ever; None leaves it to another."""
    endless = seconds is None or (isinstance(seconds, float) and seconds == math.inf)
    return seconds if endless else bounded(f"{name} (math.inf: for ever)", seconds)  # type: ignore[arg-type]


def whole_number(name: str, number: int, least: int = 1, most: int = NUMBER_MAX) -> int:
    """Return `number`, which must be whole, and neither too small nor too large."""
    if isinstance(number, bool) or not (isinstance(number, int) and least <= number <= most):
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {number!r}")
    return number


def text(name: str, value: str) -> str:
    """Return `value`, which must be text: any other would be taken for what it looks like."""
    try:
        str.encode(value)  # what has half of a surrogate pair cannot be sent
    except (TypeError, UnicodeEncodeError):
        raise ValueError(f"{name} must be text, not {value!r}") from None
    return value


def name(what: str, value: str, most: int = 96) -> str:
    """Return a name that its column holds and a page shows."""
    if not (isinstance(value, str) and 1 <= len(value) <= most and value.isprintable()):
        raise ValueError(f"{what} must have 1 to {most} printable characters, not {value!r}")
    return value


def callback(name: str, call: Callable[..., T] | None) -> Callable[..., T] | None:
    if call is not None and not is_function(call):
        raise ValueError(f"{name} must be a function without async, or None, not {call!r}")
    return call


def is_function(value: Any) -> bool:
    """Return whether it can be called, and nobody need await what it returns."""
    return callable(value) and not iscoroutinefunction(value)
