"""Read, decide, apply, and again if somebody was faster: the one way for all facts."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from django.db import IntegrityError, transaction

from idempotency.postgres.statements import UnexpectedRows, UnitOfWork
from payments.models import Attempt
from payments.providers.base import Fact
from payments.settlement import read
from payments.settlement.apply import record, settle_on
from payments.settlement.decide import refresh
from payments.settlement.decision import Outcome
from payments.states import AttemptStatus

T = TypeVar("T")

LOSSES_BEFORE_LOCK = 3


def settle(*facts: Fact, source: str) -> list[Outcome]:
    """Settle facts about one number of ours, in one transaction.

    Args:
        facts: genuine (their bytes were verified) and complete.
        source: how we learned them: ``notification``, ``query``, ``close``, ``refund``, ``bill``.

    Returns:
        What each did: `DUPLICATE` if it was known; `ANOMALY` if it was stored without being credited; `HELD` if it
        came before what it follows from.

    Transaction: opens its own, and again where another one was faster. No network.
    """
    if not facts:
        return []

    def once(work: UnitOfWork, lock: bool) -> list[Outcome]:
        with transaction.atomic():
            state = read.state_for(facts, lock=lock)
            outcomes = settle_on(work, state, facts, source=source, is_locked=lock)
            work.flush(commit=True)
        return outcomes

    return until_settled(once)


def settle_here(*facts: Fact, source: str) -> list[Outcome]:
    """Settle as `settle`, in the caller's transaction, with the payment's row locked."""
    _needs_transaction()
    work = UnitOfWork()
    outcomes = settle_on(work, read.state_for(facts, lock=True), facts, source=source, is_locked=True)
    work.flush()
    return outcomes


def rederive(payment_id: UUID) -> None:
    """Derive totals and status after a refund of the payment changed; count the version up.

    Transaction: needs the caller's; locks the payment's row.
    """
    _needs_transaction()
    work, state = UnitOfWork(), read.state_by_id(payment_id, lock=True)
    record(work, state, [refresh(state)], is_locked=True)
    work.flush()


def step_attempt(attempt: Attempt, *, among: Sequence[str], status: AttemptStatus, **columns: Any) -> bool:
    """Set an attempt's status and columns after our call; return whether it was `among` these.

    Transaction: opens its own; goes by the payment's version.
    """

    def once(work: UnitOfWork, lock: bool) -> bool:
        with transaction.atomic():
            state = read.state_by_id(attempt.payment_id, lock=lock)
            if not any(one.id == attempt.pk and one.status in among for one in state.attempts):
                return False
            record(work, state, [refresh(state.with_attempt(attempt.pk, status))], is_locked=lock)
            work.flush()
            waiting = Attempt.objects.filter(pk=attempt.pk, status__in=among)
            if not waiting.update(status=status.value, **columns):
                raise UnexpectedRows("the attempt has ended meanwhile")
            return True

    return until_settled(once)


def until_settled(once: Callable[[UnitOfWork, bool], T]) -> T:
    """Call `once` until no other write wins: optimistic, the fourth time with the row locked.

    It takes the unit of work and whether to lock. It rolls back and raises `UnexpectedRows` or `IntegrityError` if
    the payment has changed since it was read, or the order refused a step that was taken for granted.
    """
    for losses in range(LOSSES_BEFORE_LOCK):
        with suppress(UnexpectedRows, IntegrityError):
            return once(UnitOfWork(is_optimistic=not losses), False)
    return once(UnitOfWork(), True)


def _needs_transaction() -> None:
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("settling here needs the caller's transaction")
