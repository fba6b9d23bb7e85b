"""Asking the providers about everything that is still open, because a callback may never come.

Due rows are claimed in small batches: the time of their next question is moved on and committed before anyone is
asked (`SKIP LOCKED`, so several workers share the work), and every answer is folded in commits of its own. So any
number of passes may run at once; the timer's take turns, which spares providers and workers.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.db import models, transaction
from django.db.models.functions import Now
from django.utils import timezone

from idempotency.ids import new_id
from idempotency.locks import Lock
from payments import refunds, services
from payments.errors import PaymentRefused, ProviderError
from payments.models import Attempt, Refund
from payments.schedule import after, once_more
from payments.sharing import give_back, shared
from payments.states import LIVE_ATTEMPTS, OPEN_REFUNDS, AttemptStatus

log = logging.getLogger(__name__)

BATCH = 20
PASS_SECONDS = 60.0  # after which no further batch is begun

LEADER = "payments.reconcile"
# longer than a pass in which every call times out; one that hangs for longer leads no more
LEADER_SECONDS_MAX = 900.0


def run_as_leader(*, limit: int = BATCH) -> int:
    """`run_due` until nothing is due, unless another worker is in the middle of it: then nobody is asked, and the
    answer is 0.

    A worker that is killed leads until the lock's lease ends, half a minute at most.

    Transaction: NONE may be open.
    """
    # an owner for each pass: a thread that led before must not be taken for one that leads still
    owner = new_id().hex

    def leader(redis: Any) -> Lock:
        return Lock(LEADER, client=redis, owner=owner, wait_seconds=0, hold_seconds_max=LEADER_SECONDS_MAX)

    # without Redis everyone goes on, which is safe: no two passes ever claim the same row
    leads = shared(LEADER, lambda redis: leader(redis).acquire(), otherwise=None)
    if leads is False:
        log.debug("Another worker is asking the providers.")
        return 0
    try:
        return _run_until_none_is_due(limit)
    finally:
        if leads:
            give_back(LEADER, lambda redis: leader(redis).release())


def run_due(*, limit: int = BATCH) -> int:
    """Ask about at most `limit` attempts and as many refunds that are due; how many were asked about.

    Transaction: NONE may be open.
    """
    asked = _each("attempt", _claim(Attempt, LIVE_ATTEMPTS, limit), _ask_attempt)
    return asked + _each("refund", _claim(Refund, OPEN_REFUNDS, limit), refunds.submit_refund)


def _run_until_none_is_due(limit: int) -> int:
    """Batch after batch: what one leaves must not wait for the next pass, which would fall ever more behind."""
    ends_at, asked = time.monotonic() + PASS_SECONDS, 0
    while True:
        batch = run_due(limit=limit)
        asked += batch
        if batch < limit or time.monotonic() >= ends_at:
            return asked


def _ask_attempt(attempt_id: UUID) -> None:
    attempt = Attempt.objects.select_related("payment").get(pk=attempt_id)
    if attempt.payment.paid_minor or attempt.expires_at <= timezone.now():
        services.close_attempt(attempt_id)  # nobody is to pay it any more; not every provider ends it by itself
    elif attempt.status == AttemptStatus.UNCERTAIN:
        services.submit_attempt(attempt_id)  # asks first, then goes on under the same number
    else:
        services.query_attempt(attempt_id)


def _claim(model: type[models.Model], statuses: Iterable[Any], limit: int) -> list[UUID]:
    with transaction.atomic():
        due = list(
            model._default_manager.select_for_update(skip_locked=True)
            .filter(status__in=[status.value for status in statuses], next_query_at__lte=Now())
            .order_by("next_query_at")[:limit]
            .values_list("pk", "query_count")
        )
        for pk, query_count in due:
            model._default_manager.filter(pk=pk).update(
                next_query_at=after(query_count=query_count + 1), query_count=once_more()
            )
    return [pk for pk, _ in due]


def _each(what: str, ids: list[UUID], ask: Callable[[UUID], object]) -> int:
    for number in ids:
        try:
            ask(number)
        except (ProviderError, PaymentRefused) as error:
            log.warning("%s %s: no answer: %s", what, number.hex, error)
        except Exception:
            # one row's trouble must not keep the others waiting; it comes up again after its back-off
            log.exception("%s %s could not be reconciled", what, number.hex)
    return len(ids)
