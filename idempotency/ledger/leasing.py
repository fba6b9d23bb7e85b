"""Entries of phased calls: committed first, then run under a lease and a fencing number.

Every change to one is a compare-and-set on that number, and writes the history of its runs (`LedgerAttempt`) in
the same statement or transaction. The clock is the database's.
"""

import json
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from idempotency.ledger import queries
from idempotency.ledger.claiming import refuse_ledger_of_another
from idempotency.ledger.identity import Entry, Identity, Run
from idempotency.models import LedgerAttempt, LedgerEntry, Outcome, State
from idempotency.modes import Mode
from idempotency.names import schema
from idempotency.postgres import home
from idempotency.response.answers import StoredResponse


def claim_phased(identity: Identity, *, lease_seconds: float) -> Run | None:
    """Insert and commit the running entry of a phased call.

    Returns:
        The run with fencing number 1, or None if the key is taken.

    Raises:
        RuntimeError: a transaction is open; the claim would not be durable before the handler runs.
    """
    refuse_ledger_of_another(schema())
    who: list[Any] = [identity.scope, identity.key, identity.fingerprint, identity.owner, identity.request_id]
    with transaction.atomic(home.alias(), durable=True):
        row = home.row(queries.CLAIM, [*who, lease_seconds, identity.handler])
    return None if row is None else Run(row[0], fence=1)


def take_over(entry: Entry, *, owner: str, request_id: str, lease_seconds: float) -> Run | None:
    """Execute an entry again that is uncertain, or whose lease is over. Commits.

    Returns:
        The run with the next fencing number, or None if the lease is still held or another run was faster.
    """
    row = home.row(queries.TAKE_OVER, [owner, request_id, lease_seconds, entry.entry_id, entry.fence])
    return None if row is None else Run(entry.entry_id, fence=row[0])


def was_uncertain(entry_id: int) -> bool:
    """Check if a run of it ended with its outcome unknown, so that its caller heard 202.

    Ask after the take-over: the row itself does not say, and a row read before may be older.
    """
    # on the connection that took it over: a standby may lag behind
    attempts = LedgerAttempt.objects.using(home.alias())
    return attempts.filter(entry=entry_id, outcome=Outcome.UNCERTAIN).exists()


def mark_point(run: Run, *, point: str, data: Mapping[str, Any], subject: str, lease_seconds: float) -> bool:
    """Store the point and prolong the lease. False: another run has it, so roll back."""
    values: list[Any] = [point, json.dumps(data), subject, lease_seconds, run.entry_id, run.fence]
    return home.execute(queries.MARK, values) == 1


def renew_leases(leases: Mapping[Run, float]) -> dict[Run, bool]:
    """Prolong the leases of running handlers; skip rows that are locked. Commits.

    Args:
        leases: run → seconds from now.

    Returns:
        The runs that still have their lease → True if it was prolonged, False if the row was locked: try again.
    """
    which: list[Any] = [[run.entry_id for run in leases], [run.fence for run in leases], list(leases.values())]
    found = home.rows(queries.RENEW_LEASES, which)
    return {Run(entry_id, fence): renewed for entry_id, fence, renewed in found}


def note_subject(run: Run, *, subject: str) -> None:
    """Store the subject of the run, all that is known of it if its process dies."""
    home.execute(queries.NOTE_SUBJECT, [subject, run.entry_id, run.fence])


def complete_phased(run: Run, answer: StoredResponse, *, subject: str) -> bool:
    """Finish the entry if this run still is its latest; False: another run took over."""
    values = [subject, answer.status, json.dumps(answer.headers), answer.body, answer.body_key_id]
    return _end(run, queries.COMPLETE, *values)


def suspend(run: Run, *, subject: str) -> bool:
    """Mark the entry uncertain: answered 202, executed by a retry. False: another run has it."""
    return _end(run, queries.SUSPEND, subject)


def drop_lease(run: Run) -> None:
    """Let a retry resume at once; the entry stays, with the record of what was committed."""
    _end(run, queries.DROP_LEASE)


def forget(run: Run) -> bool:
    """Remove the entry of a run that did nothing; where that is not certain, end its lease.

    It is certain for a first run by the handler's own word (a 4xx not to store), and for a handler of recovery
    points none of whose steps has committed; never for an entry whose caller has heard 202.

    Returns:
        True if it was removed.
    """
    if not (forgotten := _forget(run, is_stalled=False)):
        drop_lease(run)
    return forgotten


def forget_stalled(run: Run) -> bool:
    """Remove an entry without recovery points that no process runs, once its effects are known.

    Its key is as good as new then.

    Returns:
        False if it changed since it was read, or its caller has heard 202.
    """
    return _forget(run, is_stalled=True)


def _forget(run: Run, *, is_stalled: bool) -> bool:
    return home.row(queries.FORGET, [run.entry_id, run.fence, is_stalled]) is not None


def close_by_hand(
    *, entry_id: int, fence: int, answer: StoredResponse, outcome: Outcome, operator: str, note: str
) -> bool:
    """Finish a phased entry with an operator's `answer`, and record their name and reason.

    The fencing number grows, so a run that is still alive cannot finish it as well.

    Returns:
        False if it changed since the operator looked (other fence, finished, or running under a valid lease).
    """
    with transaction.atomic(home.alias()):
        entry = (
            LedgerEntry.objects.select_for_update()
            .filter(pk=entry_id, fence=fence, mode=Mode.PHASED)
            .exclude(state=State.FINISHED)
            .exclude(state=State.RUNNING, lease_until__gt=Now())
            .first()
        )
        if entry is None:
            return False
        entry.attempts.filter(outcome=Outcome.RUNNING).update(outcome=Outcome.LOST, ended_at=Now())
        LedgerAttempt.objects.create(
            entry=entry, fence=fence + 1, owner=operator, ended_at=Now(), outcome=outcome, note=note
        )
        LedgerEntry.objects.filter(pk=entry_id).update(
            state=State.FINISHED,
            fence=fence + 1,
            lease_until=None,
            response_status=answer.status,
            response_headers=answer.headers,
            response_body=answer.body,
            body_key_id=answer.body_key_id,
            finished_at=Now(),
        )
    return True


def _end(run: Run, sql: str, *values: object) -> bool:
    return home.row(sql, [*values, run.entry_id, run.fence]) is not None
