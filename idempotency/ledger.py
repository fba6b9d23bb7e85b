"""The ledger's only writer: claim, record, complete, suspend, release.

Every function is one SQL statement that decides by itself; the clock is the database's. An entry of an atomic
call lives and dies with the caller's transaction. An entry of a phased call is committed before the handler
runs, under a lease, and every later change to it is a compare-and-set on its fencing number.
"""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from idempotency.models import LedgerEntry, State
from idempotency.modes import Mode
from idempotency.response import StoredResponse

LOCK_NOT_AVAILABLE = "55P03"

_INSERT = f"""
INSERT INTO {LedgerEntry._meta.db_table}
    (scope, key, fingerprint, mode, state, owner, request_id, fence, lease_until,
     response_status, response_headers, response_body, finished_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, 1, statement_timestamp() + %s * interval '1 second', %s, %s, %s,
        CASE WHEN %s THEN statement_timestamp() END)
ON CONFLICT (scope, key) DO NOTHING
RETURNING id
"""  # noqa: S608  the only name in it is our own table's


class TwinRunning(Exception):
    """Another transaction holds this key, uncommitted, longer than we wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a keyed request is in the ledger.

    Attributes:
        scope, key: unique together.
        fingerprint: 32 bytes.
        owner: the process, for people.
        request_id: of this execution, for people.
    """

    scope: str
    key: str
    fingerprint: bytes
    owner: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Run:
    """The right to execute a phased entry: valid while nobody holds a greater fencing number."""

    entry_id: int
    fence: int


def find(*, scope: str, key: str) -> LedgerEntry | None:
    """The committed entry of (scope, key)."""
    return LedgerEntry.objects.filter(scope=scope, key=key).first()


def claim(identity: Identity, *, wait_seconds: float) -> int | None:
    """Claim first: insert the running entry of an atomic call. Needs a transaction.

    A twin in another transaction is waited for at the unique index.

    Returns:
        The entry's id, or None if the key is taken by a committed entry.

    Raises:
        TwinRunning: the twin did not end within `wait_seconds`; the transaction is unusable.
    """
    milliseconds = max(1, round(wait_seconds * 1000))
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{milliseconds}ms"])
        try:
            entry_id = _insert(identity, mode=Mode.ATOMIC, state=State.RUNNING, lease_seconds=None, answer=None)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) == LOCK_NOT_AVAILABLE:
                raise TwinRunning from error
            raise
        cursor.execute("SET LOCAL lock_timeout = 0")
    return entry_id


def record(identity: Identity, answer: StoredResponse) -> bool:
    """Insert last: the finished entry of an atomic call with its answer. Needs a transaction.

    Returns:
        False if the key is taken: the caller must roll its whole transaction back and replay the winner.
    """
    entry_id = _insert(identity, mode=Mode.ATOMIC, state=State.FINISHED, lease_seconds=None, answer=answer)
    return entry_id is not None


def complete(entry_id: int, answer: StoredResponse) -> None:
    """Finish the entry that `claim` made in this same transaction."""
    _finish(LedgerEntry.objects.filter(pk=entry_id), answer)


def claim_phased(identity: Identity, *, lease_seconds: float) -> Run | None:
    """Insert and commit the running entry of a phased call.

    Returns:
        The run with fencing number 1, or None if the key is taken.

    Raises:
        RuntimeError: a transaction is open; the claim would not be durable before the handler runs.
    """
    with transaction.atomic(durable=True):
        entry_id = _insert(
            identity, mode=Mode.PHASED, state=State.RUNNING, lease_seconds=lease_seconds, answer=None
        )
    return None if entry_id is None else Run(entry_id, fence=1)


def take_over(entry: LedgerEntry, identity: Identity, *, lease_seconds: float) -> Run | None:
    """Execute an unfinished phased entry again: uncertain, or running with its lease over. Commits.

    Returns:
        The run with the next fencing number, or None if the lease is still held or someone was faster.
    """
    free = Q(state=State.UNCERTAIN) | Q(state=State.RUNNING, lease_until__lte=Now())
    taken = LedgerEntry.objects.filter(free, pk=entry.pk, fence=entry.fence).update(
        state=State.RUNNING,
        fence=entry.fence + 1,
        lease_until=Now() + timedelta(seconds=lease_seconds),
        owner=identity.owner,
        request_id=identity.request_id,
    )
    return Run(entry.pk, fence=entry.fence + 1) if taken else None


def complete_phased(run: Run, answer: StoredResponse) -> bool:
    """Finish the entry if this run still is its latest; False: another run took over."""
    return bool(_finish(_running(run), answer))


def suspend(run: Run) -> bool:
    """Mark the entry uncertain: answered 202, to be executed again by a retry. False: another run took over."""
    return bool(_running(run).update(state=State.UNCERTAIN, lease_until=None))


def drop_lease(run: Run) -> None:
    """Let a retry resume at once; the entry stays, so that what the run committed is never forgotten."""
    _running(run).update(lease_until=Now())


def forget(run: Run) -> None:
    """Remove the entry of a first run that, by the handler's own word (a 4xx not to store), did nothing."""
    if run.fence == 1:
        _running(run).delete()
    else:
        drop_lease(run)


def _running(run: Run) -> Any:
    return LedgerEntry.objects.filter(pk=run.entry_id, fence=run.fence, state=State.RUNNING)


def _finish(entries: Any, answer: StoredResponse) -> int:
    count: int = entries.update(
        state=State.FINISHED,
        lease_until=None,
        response_status=answer.status,
        response_headers=answer.headers,
        response_body=answer.body,
        finished_at=Now(),
    )
    return count


def _insert(
    identity: Identity,
    *,
    mode: Mode,
    state: State,
    lease_seconds: float | None,
    answer: StoredResponse | None,
) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT,
            [
                identity.scope,
                identity.key,
                identity.fingerprint,
                mode.value,
                state.value,
                identity.owner,
                identity.request_id,
                lease_seconds,
                answer.status if answer else None,
                json.dumps(answer.headers if answer else {}),
                answer.body if answer else None,
                answer is not None,
            ],
        )
        row = cursor.fetchone()
    return row[0] if row else None
