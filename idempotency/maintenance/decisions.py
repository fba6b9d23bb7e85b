"""Decisions about entries whose outcome is unknown: an operator's, or the project's.

An operator's finish the entry for good: a retry with its key gets the stored answer and nothing is executed. Their
name and reason are recorded in the entry's history, which cannot be changed. Abandoning also has the handler undo
the commits of its steps (`Phases.on_abandon`), or is refused.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from idempotency import ledger
from idempotency.errors import PROBLEM_JSON, Problem, problem_document
from idempotency.models import LedgerEntry, Outcome, State
from idempotency.observability import metrics
from idempotency.postgres import home
from idempotency.protocol.recovery import NotAbandonable, Progress, declared
from idempotency.redis import marker
from idempotency.request.keys import digest_of
from idempotency.response import encryption
from idempotency.response.answers import UNCERTAIN_STATUS, StoredResponse

RESOLVE_STATUSES = (200, 201, 204)  # not 202: the handler answers that, not the ledger
BATCH = 100
IDLE_SECONDS = 120.0  # idle time of a stalled entry: its caller's own retries come first

# no body: a retry is shown the current state, as after a retry that ended the entry
ANSWER = StoredResponse(status=UNCERTAIN_STATUS, headers={}, body=None)


class NotDecidable(Exception):
    """Error of an entry that is finished, atomic, under a lease, or changed since it was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision of an operator about the entry that they have seen.

    Attributes:
        fence: fencing number of the entry when the operator saw it.
        operator: their name, for the history.
        note: their reason; not empty.
    """

    entry_id: int
    fence: int
    operator: str
    note: str


def resolve(decision: Decision, *, status: int, body: str, location: str = "") -> None:
    """Record that it happened: answer the key with this from now on.

    Args:
        status: one of `RESOLVE_STATUSES`, as form and command choose.
        body: JSON, or empty for 204.
        location: address of the new resource; may be empty.

    Raises:
        NotDecidable: see there.
        ValueError: no reason, a body that is not JSON, or a location with spaces.
    """
    if status != 204:
        must_be_json(body)
    if location and location.split() != [location]:  # one with a line break would make each retry a 500
        raise ValueError("The location must be an address, without spaces.")
    headers = {"Content-Type": "application/json"} | ({"Location": location} if location else {})
    _close(
        decision, Outcome.RESOLVED, status=status, headers=headers, body=b"" if status == 204 else body.encode()
    )


def must_be_json(body: str) -> None:
    """Refuse a body that a caller's parser would not read. Raises ValueError."""
    try:
        json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The answer's body must be JSON: {error}.") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is Python's alone")


def abandon(decision: Decision) -> None:
    """Record that the effect did not and must not happen: 409 `operation_abandoned`.

    Raises:
        NotDecidable: see there.
        NotAbandonable: its handler cannot undo its steps; nothing changed.
        ValueError: no reason.
    """
    problem = Problem(
        409,
        "operation_abandoned",
        _("This request was not carried out and was closed by an operator. Use a new key for a new intent."),
    )
    body = json.dumps(problem_document(problem)).encode()
    _close(decision, Outcome.ABANDONED, status=409, headers={"Content-Type": PROBLEM_JSON}, body=body)


def _close(decision: Decision, outcome: Outcome, *, status: int, headers: dict[str, str], body: bytes) -> None:
    if not decision.note.strip():
        raise ValueError("A decision needs a reason.")
    seen = LedgerEntry.objects.using(home.alias()).filter(pk=decision.entry_id, fence=decision.fence)
    entry = seen.exclude(state=State.FINISHED).first()
    if entry is None:
        raise NotDecidable
    digest = digest_of(scope=entry.scope, key=entry.key)
    answer = encryption.seal(StoredResponse(status=status, headers=headers, body=body), digest=digest)
    name = marker.key_of(digest)
    with transaction.atomic(home.alias()):
        if outcome is Outcome.ABANDONED:
            # Undo before locking the entry, as a step locks its own rows first. A step that goes on meanwhile has
            # the lease again, and so the entry is not closed.
            _undo(entry, digest)
        closed = ledger.close_by_hand(
            entry_id=decision.entry_id,
            fence=decision.fence,
            answer=answer,
            outcome=outcome,
            operator=decision.operator,
            note=decision.note.strip(),
        )
        if not closed:
            raise NotDecidable
    marker.ring(name)


def _undo(entry: LedgerEntry, digest: str) -> None:
    """Let the handler undo its steps; none has committed where there is no recovery point."""
    if not entry.recovery_point:
        return
    phases = declared.get(entry.handler)
    if phases is None:
        why = gettext(
            "This program does not have the steps '%(steps)s' of this entry, so it cannot undo them. "
            "Abandon it by the program that has them, or resolve it."
        )
        raise NotAbandonable(why % {"steps": entry.handler})
    phases.abandon(Progress(data=dict(entry.recovery_data), key_digest=digest, resumed=True))


def resolve_known(*, is_known: Callable[[str], bool], limit: int = 10_000) -> int:
    """End unfinished entries about subjects whose outcome is known by now.

    An uncertain one is finished: its caller, who heard 202, is shown the current state from then on. A stalled
    one, whose caller heard a 5xx or nothing, is removed: the key is free, as after any 5xx. `about` names the
    subject; an entry without one is left alone.

    Args:
        is_known: given the subject, such as ``order:0190…``, says if its outcome is known and no refusal, which a
            retry has to get and store. It only reads.
        limit: most entries to look at; the oldest come first.

    Returns:
        How many were ended. One that a retry runs meanwhile is left to it.
    """
    stalled = Q(state=State.RUNNING, lease_until__lte=Now() - timedelta(seconds=IDLE_SECONDS))
    waiting = LedgerEntry.objects.using(home.alias()).filter(Q(state=State.UNCERTAIN) | stalled, handler="")
    waiting = waiting.exclude(subject="").order_by("pk").only("scope", "key", "fence", "state", "subject")
    settled, after_id, seen = 0, 0, 0
    while seen < limit and (batch := list(waiting.filter(pk__gt=after_id)[: min(BATCH, limit - seen)])):
        settled += sum(is_known(entry.subject) and _end(entry) for entry in batch)
        after_id, seen = batch[-1].pk, seen + len(batch)
    return settled


def _end(entry: LedgerEntry) -> bool:
    stalled = entry.state == State.RUNNING
    ended = (stalled and ledger.forget_stalled(ledger.Run(entry.pk, entry.fence))) or ledger.close_by_hand(
        entry_id=entry.pk,
        fence=entry.fence,
        answer=ANSWER,
        outcome=Outcome.FINISHED,
        operator="completer",
        note="its outcome became known",
    )
    if ended:
        metrics.resumed.labels("settled").inc()
        marker.ring(marker.key_of(digest_of(scope=entry.scope, key=entry.key)))
    return ended
