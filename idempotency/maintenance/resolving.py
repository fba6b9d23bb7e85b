"""Resolution of unfinished entries without recovery points, once the project knows the outcome outside.

The completer runs a handler of recovery points again until it knows. Any other handler runs again only when its
caller retries; but a caller who heard 202 looks at the resource, and one who heard 502 does something else.
"""

from collections.abc import Callable
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from idempotency import ledger
from idempotency.models import LedgerEntry, Outcome, State
from idempotency.observability import metrics
from idempotency.postgres import home
from idempotency.redis import marker
from idempotency.request.keys import digest_of
from idempotency.response.answers import StoredResponse

BATCH = 100
IDLE_SECONDS = 120.0  # idle time of a stalled entry: its caller's own retries come first

# no body: a retry is shown the current state, as after a retry that ended the entry
ANSWER = StoredResponse(status=202, headers={}, body=None)


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
