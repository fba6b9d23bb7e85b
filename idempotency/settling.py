"""Ends uncertain entries of handlers without recovery points, once their project knows how the outside decided.

A handler made of recovery points is run again until it knows (`idempotency.completer`). One without is run again
by its caller's retry alone; but who heard 202 mostly looks at the resource from then on, and retries no more.
"""

from collections.abc import Callable

from django.db import connection

from idempotency import ledger, marker, metrics
from idempotency.keys import digest_of
from idempotency.models import LedgerEntry, Outcome, State
from idempotency.response import StoredResponse

BATCH = 100

# without a body: who retries is shown the current state, as after a retry that ended the entry
ANSWER = StoredResponse(status=202, headers={}, body=None)


def settle_known(*, is_known: Callable[[str], bool], limit: int = 10_000) -> int:
    """Finish uncertain entries about subjects whose outcome is known by now.

    Args:
        is_known: given the subject, such as ``order:0190…``, whether a retry would hear of an outcome, and of none
            that is a refusal: those are for a retry to hear and keep. It reads.
        limit: most entries to look at; the oldest come first.

    Returns:
        How many were finished. One that a retry runs meanwhile is left to it.
    """
    waiting = LedgerEntry.objects.using(connection.alias).filter(state=State.UNCERTAIN, handler="")
    waiting = waiting.exclude(subject="").order_by("pk").only("scope", "key", "fence", "subject")
    settled, after_id, seen = 0, 0, 0
    while seen < limit and (batch := list(waiting.filter(pk__gt=after_id)[: min(BATCH, limit - seen)])):
        settled += sum(is_known(entry.subject) and _finish(entry) for entry in batch)
        after_id, seen = batch[-1].pk, seen + len(batch)
    return settled


def _finish(entry: LedgerEntry) -> bool:
    finished = ledger.close_by_hand(
        entry_id=entry.pk,
        fence=entry.fence,
        answer=ANSWER,
        outcome=Outcome.FINISHED,
        operator="completer",
        note="its outcome became known",
    )
    if finished:
        metrics.resumed.labels("settled").inc()
        marker.ring(digest_of(scope=entry.scope, key=entry.key))
    return finished
