"""Questions to providers about all that is open: a callback may never come.

Due rows are claimed in small batches: their next question is put off and committed first (`SKIP LOCKED`), and
every answer is settled in commits of its own. Any number of passes may run at once; the timer's take turns, which
spares providers and workers.
"""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import models, transaction
from django.db.models.functions import Now
from django.utils import timezone

from idempotency.ids import new_id
from idempotency.locks import Lock
from payments.attempts import closing, submission
from payments.channels.accounts import OPEN
from payments.channels.sharing import give_back, shared
from payments.errors import PaymentRefused, ProviderError, ProviderRejected
from payments.models import Attempt, Refund
from payments.refunds import steps as refunds
from payments.settlement.backoff import after
from payments.states import AttemptStatus, RefundStatus

log = logging.getLogger(__name__)

BATCH = 20
PASS_SECONDS = 60.0  # after which no further batches are begun

LEADER = "payments.reconciliation.reconcile"
# longer than a pass in which every call times out; one that hangs for longer leads no more
LEADER_SECONDS_MAX = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Number of rows that providers were asked about, and of those without an answer."""

    count: int
    unanswered: int


def run_as_leader(*, batch: int = BATCH) -> int:
    """Ask until nothing is due, or `PASS_SECONDS` are over; return 0 while another worker does.

    A worker that is killed leads until the lock's lease ends, half a minute at most.

    Transaction: NONE may be open.
    """
    # an owner for each pass: a thread that led before must not be taken for one that leads still
    owner = new_id().hex

    def leader(redis: Any) -> Lock:
        return Lock(LEADER, client=redis, owner=owner, wait_seconds=0, hold_seconds_max=LEADER_SECONDS_MAX)

    # without Redis every worker continues, which is safe: no two passes ever claim the same row
    leads = shared(LEADER, lambda redis: leader(redis).acquire(), otherwise=None)
    if leads is False:
        log.debug("Another worker is asking the providers.")
        return 0
    try:
        return sum(asked.count for asked in all_due(batch=batch, seconds=PASS_SECONDS))
    finally:
        if leads:
            give_back(LEADER, lambda redis: leader(redis).release())


def all_due(*, limit: int = sys.maxsize, batch: int = BATCH, seconds: float = math.inf) -> Iterator[Asked]:
    """Ask about what is due, in batches, until one is not filled.

    What waited for the next pass would make passes fall behind.

    Args:
        limit: of attempts and refunds together.
        seconds: after which no further batches are begun.

    Transaction: NONE may be open.
    """
    left, found, ends_at = limit, batch, time.monotonic() + seconds
    while found >= batch and time.monotonic() < ends_at:  # after both models, so that neither starves
        found = 0
        for model in _QUESTIONS:
            if ids := _claim(model, min(left, batch)):
                left, found = left - len(ids), found + len(ids)
                yield _ask(model, ids)


def all_open(*, limit: int | None = None) -> Iterator[Asked]:
    """Ask about all open attempts and refunds, or `limit`, due or not, oldest first.

    For a person who knows that a provider answers again; the timer's next question is not put off.

    Transaction: NONE may be open.
    """
    batches, left = [], limit
    for model in _QUESTIONS:
        ids = list(_open(model).order_by("pk").values_list("pk", flat=True)[:left])
        left = None if left is None else left - len(ids)
        batches += [(model, ids[start : start + BATCH]) for start in range(0, len(ids), BATCH)]
    for model, batch in batches:
        yield _ask(model, batch)


def _ask_attempt(attempt_id: UUID) -> bool:
    attempt = Attempt.objects.select_related("payment").get(pk=attempt_id)
    if attempt.payment.paid_minor or attempt.expires_at <= timezone.now():
        closing.close_attempt(attempt_id)  # it must not be paid any more; not every provider ends it by itself
        return True
    if attempt.status != AttemptStatus.UNCERTAIN:
        closing.query_attempt(attempt_id)
        return True
    try:
        submission.submit_attempt(attempt_id)  # asks first, then continues under the same number
    except ProviderRejected as error:
        log.warning("attempt %s: refused: %s", attempt.out_trade_no, error)
    attempt.refresh_from_db(fields=["status"])
    return attempt.status != AttemptStatus.UNCERTAIN


# what asks about a row by its number; False if the answer settles nothing
_QUESTIONS: dict[type[models.Model], Callable[[UUID], bool]] = {
    Attempt: _ask_attempt,
    Refund: lambda refund_id: refunds.submit_refund(refund_id).status != RefundStatus.UNCERTAIN,
}


def _open(model: type[models.Model]) -> models.QuerySet[Any]:
    return model._default_manager.filter(status__in=OPEN[model][0])


def _claim(model: type[models.Model], limit: int) -> list[UUID]:
    with transaction.atomic():
        due = list(
            _open(model)
            .select_for_update(skip_locked=True)
            .filter(next_query_at__lte=Now())
            .order_by("next_query_at")[:limit]
            .values_list("pk", "query_count")
        )
        for pk, query_count in due:
            model._default_manager.filter(pk=pk).update(
                next_query_at=after(query_count=query_count + 1), query_count=models.F("query_count") + 1
            )
    return [pk for pk, _ in due]


def _ask(model: type[models.Model], ids: list[UUID]) -> Asked:
    answered, name = 0, model._meta.model_name
    for number in ids:
        try:
            answered += _QUESTIONS[model](number)
        except (ProviderError, PaymentRefused) as error:
            log.warning("%s %s: no answer: %s", name, number.hex, error)
        except Exception:
            # one row's trouble must not keep the others waiting; it comes up again after its back-off
            log.exception("%s %s could not be reconciled", name, number.hex)
    return Asked(count=len(ids), unanswered=len(ids) - answered)
