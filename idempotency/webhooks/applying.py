"""Application of stored events, each in one transaction with its handler's writes.

An event of an entity is applied under the entity's lock, and held until its predecessor is applied; then what is
held after it follows. A run that fails is recorded, and one that ends its worker; after `attempts_max` of them a
person decides.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import isasyncgen, isawaitable, isgenerator
from typing import Protocol

from django.conf import settings
from django.db import transaction
from django.urls import get_resolver
from django.utils.datastructures import CaseInsensitiveMapping
from django.utils.translation import gettext

from idempotency.conf import config
from idempotency.locks.errors import LockError
from idempotency.locks.postgres import transaction_lock
from idempotency.models import EventStatus, WebhookEvent
from idempotency.observability import metrics
from idempotency.postgres import home, transactions
from idempotency.response.redaction import reason_of
from idempotency.webhooks import queries
from idempotency.webhooks.event import Event, NotReplayable

log = logging.getLogger("idempotency")

BATCH = 100
FOLLOWERS_MAX = 100  # waiting events that one request applies; a worker goes on
DUPLICATE = "duplicate"
BUSY = "busy"
_DONE = {EventStatus.APPLIED, DUPLICATE}  # a copy too: the process of the first may have died before what waits


class Hook(Protocol):
    """Handler of a sender, as `webhook` declares it."""

    sender: str
    handler: Callable[[Event], object]
    attempts_max: int


declared: dict[str, Hook] = {}


def apply_stored_events(*, limit: int = 1_000) -> dict[str, int]:
    """Apply up to `limit` events that are due: deferred, failed, interrupted, or held and next.

    Run it every minute or so. Any number may run at once; a next call goes on.

    Returns:
        How many by result: `applied`, `duplicate` (a copy was faster), `held`, `failed`, `quarantined`, `busy`.

    Transaction: NONE may be open; each event has its own.
    """
    results: dict[str, int] = {}
    if home.has_no_ledger():
        log.warning(home.NO_LEDGER)
        return results
    home.refuse_open_transaction()
    after_id, seen, known = 0, 0, _known()
    while seen < limit and (found := home.rows(queries.DUE, [after_id, sorted(known), min(BATCH, limit - seen)])):
        for (number,) in found:
            if home.execute(queries.CLAIM, [number]):
                row = WebhookEvent.objects.using(home.alias()).defer("body").get(pk=number)
                for result in apply(known[row.sender], row, is_counted=True):
                    results[result] = results.get(result, 0) + 1
        after_id, seen = found[-1][0], seen + len(found)
    return results


def replay(number: int, *, operator: str, note: str) -> str:
    """Apply an event by hand now, in order or not.

    Args:
        number: of its row.
        operator: their name; with `note`, their reason, it is stored in the row.

    Returns:
        `applied`; or `failed` or `quarantined`, with the error in the row.

    Raises:
        NotReplayable: it is applied, no handler is known, or another event of its entity is being applied.
        ValueError: no reason.

    Transaction: NONE may be open; it has its own.
    """
    home.refuse_open_transaction()
    if not note.strip():
        raise ValueError("A replay needs a reason.")
    why = gettext("Event #%(number)s is applied or missing, or @webhook is on no handler of its sender.")
    refused = NotReplayable(why % {"number": number})
    row = WebhookEvent.objects.using(home.alias()).filter(pk=number).exclude(status=EventStatus.APPLIED).first()
    if row is None or (hook := _known().get(row.sender)) is None:
        raise refused
    result = apply(hook, row, note=f"{datetime.now(UTC):%Y-%m-%d %H:%M} {operator}: {note.strip()}")[0]
    if result == BUSY:
        raise NotReplayable(gettext("Another event of its entity is being applied. Try again."))
    if result == DUPLICATE:  # another was faster
        raise refused
    return result


def apply(hook: Hook, row: WebhookEvent, *, note: str = "", is_counted: bool = False) -> list[str]:
    """Apply a stored event, then what waits for it; return what became of each.

    Args:
        note: of the operator who applies it by hand.
        is_counted: `CLAIM` has counted this attempt.
    """
    results = [_apply_one(hook, row, note=note, runs=0 if is_counted else 1)]
    if is_counted and results[0] in {BUSY, EventStatus.HELD}:
        home.execute(queries.UNCOUNT, [row.pk])
    while results[-1] in _DONE and row.sequence is not None and len(results) <= FOLLOWERS_MAX:
        follower = WebhookEvent.objects.using(home.alias()).filter(
            sender=row.sender,
            entity=row.entity,
            sequence=row.sequence + 1,
            status__in=[EventStatus.HELD, EventStatus.STORED],
        )
        following = follower.first()
        if following is None:
            break
        results.append(_apply_one(hook, following))
        row = following
    return results


def _known() -> dict[str, Hook]:
    """Return every hook by its sender; import the project's addresses first, for a worker."""
    if getattr(settings, "ROOT_URLCONF", None):
        _ = get_resolver().url_patterns
    return declared


def _apply_one(hook: Hook, row: WebhookEvent, *, note: str = "", runs: int = 1) -> str:
    """Apply one event; `runs` is to be added to its attempts."""
    try:
        with transaction.atomic(home.alias()):
            result = _run(hook, row, note=note, runs=runs)
    except Exception as error:
        log.exception("A webhook event of %s could not be applied", hook.sender)
        result = _note_failure(hook, row.pk, error, runs=runs)
    metrics.webhooks.labels(hook.sender, result).inc()
    return result


def _run(hook: Hook, seen: WebhookEvent, *, note: str, runs: int) -> str:
    """Run the handler under the entity's and the row's lock, unless it is applied or too early."""
    if seen.sequence is not None:
        try:
            transaction_lock(f"webhook {seen.sender} {seen.entity}", using=home.alias())
        except LockError:  # the connection has a limit of its own
            return BUSY
    row = WebhookEvent.objects.using(home.alias()).select_for_update().get(pk=seen.pk)
    if row.status == EventStatus.APPLIED:
        return DUPLICATE
    if row.status == EventStatus.QUARANTINED and not note:
        return EventStatus.QUARANTINED
    if not note and row.sequence is not None and not home.row(queries.IS_NEXT, [row.pk])[0]:
        home.execute(queries.HOLD, [row.pk])
        return EventStatus.HELD
    attempt = row.attempts + runs
    if attempt > hook.attempts_max and not note:
        raise RuntimeError(f"None of {hook.attempts_max} attempts is left; one that ends its process counts too.")
    event = Event(
        sender=row.sender,
        id=row.event_id,
        headers=CaseInsensitiveMapping(row.headers),
        body=bytes(row.body or b""),
        received_at=row.received_at,
        attempt=attempt,
    )
    database = home.connection()
    transactions.defer(database)
    try:
        done = hook.handler(event)
    finally:
        transactions.stop(database)
    if isawaitable(done) or isgenerator(done) or isasyncgen(done):
        raise TypeError(f"{hook.handler!r} returned before its work is done: write `def`, without yield.")
    home.execute(queries.APPLIED, [runs, note, row.pk])
    return EventStatus.APPLIED


def _note_failure(hook: Hook, number: int, error: Exception, *, runs: int) -> str:
    """Record that a run failed; raises the database's error if it is away, and no more counts."""
    values = {"runs": runs, "error": reason_of(error), "attempts_max": hook.attempts_max, "id": number}
    found = home.row(queries.FAILED, values)
    # no row: a copy was applied meanwhile, or only what waited for the commit has failed
    return EventStatus.APPLIED if found is None else EventStatus(found[0])


def purge_bodies(*, limit: int) -> int:
    """Remove the requests of up to `limit` events applied `BODY_SECONDS` ago; return the count."""
    return home.execute(queries.PURGE_BODIES, [config().body_seconds, limit])


def drop(*, limit: int) -> int:
    """Delete events applied `TOMBSTONE_SECONDS` ago; of an entity's last, its attempts."""
    return home.execute(queries.DROP, [config().tombstone_seconds, limit])
