"""Checks of a case; each raises `Broken` with a sentence for the plug-in's author."""

from collections.abc import Callable

from payments.errors import OutcomeUnknown, ProviderUnavailable
from payments.providers.base import Fact


class Broken(Exception):
    """A promise that the plug-in did not hold."""


class Skipped(Exception):
    """A case that this simulator or this channel has no way to show."""


def must(holds: bool, sentence: str) -> None:
    """Require it. Raises Broken."""
    if not holds:
        raise Broken(sentence)


def proves_nothing(call: Callable[[], object], *, what: str, after: str) -> None:
    """Require `call`, named `what`, to leave the outcome open after this answer.

    Broken is whatever returns, or raises anything but `OutcomeUnknown` and `ProviderUnavailable`.
    """
    try:
        result = call()
    except (OutcomeUnknown, ProviderUnavailable):
        return
    except Exception as error:
        raise Broken(f"{what} raised {type(error).__name__} after {after}, which proves nothing") from error
    returned = f"{getattr(result, 'status', result)!s:.60}"
    raise Broken(f"{what} returned {returned} after {after}, which proves nothing")


def unless_unknown(call: Callable[[], object]) -> bool:
    """Return False if `call` says that its outcome is unknown."""
    try:
        call()
    except OutcomeUnknown:
        return False
    return True


def money(fact: Fact) -> tuple[object, ...]:
    """Return the members by which two sources of one fact must agree."""
    return (
        *(fact.kind, fact.channel, fact.merchant, fact.out_trade_no, fact.provider_txn_id),
        *(fact.amount_minor, fact.currency),
    )
