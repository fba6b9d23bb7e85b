"""Sending: at least once, in order per payment, each attempt under the same ``webhook-id``.

A claim of a row is committed before its request leaves, and counts for `LEASE`: the row of a process that
was killed is due again after that. Unique `delivery_one_at_a_time` refuses a second one of a payment.
"""

import json
import time
from collections import Counter
from datetime import UTC, timedelta
from typing import Any
from uuid import UUID

import httpx
from django.db import IntegrityError, transaction
from django.db.models import Case, Exists, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Greatest, Now

from idempotency.conf import config as idempotency
from idempotency.webhooks import Unverifiable
from payments.attempts.calling import must_be_outside_transactions
from payments.conf import Endpoint, config
from payments.deliveries.endpoints import signer
from payments.display import ANSWERED
from payments.errors import ProviderError
from payments.models import Delivery
from payments.models.event import ENDED, LIVES, OPEN
from payments.providers import transport
from payments.providers.settings_fields import ConfigError
from payments.settlement import backoff

TIMEOUT_SECONDS = 10.0
LEASE = timedelta(seconds=30)  # longer than any attempt
SENT_AT_ONCE = 2  # to one endpoint, so that a slow one does not take every worker
ANSWER_BYTES_MAX = 65_536
PASS_SECONDS = 10.0
REMOVED = "given up: there is no such endpoint any more"

Status = Delivery.Status


def due_endpoints() -> list[str]:
    """Name the configured endpoints for which something is due."""
    return [name for name in config().webhooks if _due(name).exists()]


def send_due(name: str) -> Counter[str]:
    """Send what is due, until the endpoint fails or `PASS_SECONDS` are over; count the ends.

    Transaction: NONE may be open. Any number may run at once.
    """
    must_be_outside_transactions()
    endpoint, results = config().webhooks[name], Counter[str]()
    session, ends_at = transport.client(timeout_seconds=TIMEOUT_SECONDS), time.monotonic() + PASS_SECONDS
    while time.monotonic() < ends_at and (row := _claim(name)):
        status, answer = _attempt(session, name, endpoint, row)
        if 200 <= status < 300:
            _end(row, answer, status=Status.DELIVERED, delivered_at=Now())
            results["delivered"] += 1
            continue
        due_at = Now() + timedelta(seconds=backoff.delay_seconds(row.attempts - 1))
        # one that is gone takes no more (Standard Webhooks 1.0.0): given up at once, for a person
        over = Q(pk=row.pk) if status == httpx.codes.GONE else Q(ends_at__lt=due_at)
        then = Case(When(over, then=Value(Status.FAILED)), default=Value(Status.WAITING))
        _end(row, answer, status=then, due_at=due_at)
        results["not delivered"] += 1
        if not status or status >= 500:
            break
    return results


def send_again(delivery_id: UUID) -> bool:
    """Make a delivery due now, and for three days more; return False while it is being sent."""
    row = Delivery.objects.filter(pk=delivery_id).exclude(status=Status.SENDING)
    return bool(row.update(status=Status.WAITING, delivered_at=None, due_at=Now(), ends_at=LIVES))


def drop(*, limit: int) -> int:
    """Delete `limit` deliveries ended ``TOMBSTONE_SECONDS`` ago; of a payment's last, its log.

    Those that wait for a removed endpoint are given up first, once their time is over. Return how many it were.
    """
    while _give_up(limit=limit) == limit:
        pass
    with transaction.atomic():
        old = list(old_ones().select_for_update(skip_locked=True)[:limit])
        # the last of a payment and endpoint stays, as its successor is counted from it; without its log it is not
        # found again, until its successor is
        Delivery.objects.filter(pk__in=[row.pk for row in old if row.is_last]).update(log=[])
        gone = [row.pk for row in old if not row.is_last] + [row.before for row in old]
        Delivery.objects.filter(pk__in=gone, status__in=ENDED).delete()
    return len(old)


def old_ones() -> QuerySet[Any]:
    """Select what `drop` forgets, the longest ago first."""
    same = Delivery.objects.filter(payment=OuterRef("payment"), endpoint=OuterRef("endpoint"))
    later, before = same.filter(sequence__gt=OuterRef("sequence")), same.filter(sequence=OuterRef("sequence") - 1)
    ended, age = Coalesce("delivered_at", "ends_at"), timedelta(seconds=idempotency().tombstone_seconds)
    rows = Delivery.objects.filter(status__in=ENDED).exclude(log=[]).alias(ended=ended)
    return (
        rows.filter(ended__lt=Now() - age)
        .annotate(is_last=Q(payment__isnull=False) & ~Exists(later))
        .annotate(before=Subquery(before.filter(log=[]).values("pk")))
        .only("pk")
        .order_by("ended")
    )


def _give_up(*, limit: int) -> int:
    """End what the project no longer has an endpoint for, once its time is over."""
    lapsed = Delivery.objects.filter(status__in=OPEN).exclude(endpoint__in=[*config().webhooks])
    lapsed = lapsed.alias(over=Greatest("due_at", "ends_at")).filter(over__lt=Now()).annotate(now=Now())
    with transaction.atomic():
        rows = list(lapsed.select_for_update(skip_locked=True)[:limit])
        for row in rows:
            row.status, row.log = Status.FAILED, [*row.log, {"at": row.now.isoformat(), "answer": REMOVED}]
        Delivery.objects.bulk_update(rows, ["status", "log"])
    return len(rows)


def _due(name: str) -> QuerySet[Delivery]:
    return Delivery.objects.filter(endpoint=name, status__in=OPEN, due_at__lte=Now())


def _claim(name: str) -> Any:
    """Claim what is due next, if no other of its payment is being sent or comes before it."""
    mine = Delivery.objects.filter(endpoint=name)
    ahead = Q(status=Status.SENDING) | Q(status=Status.WAITING, sequence__lt=OuterRef("sequence"))
    others = mine.filter(ahead, payment=OuterRef("payment")).exclude(pk=OuterRef("pk"))
    free = _due(name).filter(~Exists(others)).annotate(now=Now()).order_by("due_at")
    try:
        with transaction.atomic():
            if mine.filter(status=Status.SENDING, due_at__gt=Now()).count() >= SENT_AT_ONCE:
                return None
            if (row := free.select_for_update(skip_locked=True).first()) is not None:
                row.status, row.due_at, row.attempts = Status.SENDING, row.now + LEASE, row.attempts + 1
                row.log.append({"at": row.now.isoformat()})
                row.save(update_fields=["status", "due_at", "attempts", "log"])
            return row
    except IntegrityError:  # another process has just taken another one of the same payment
        return None


def _end(row: Delivery, answer: str, **columns: Any) -> None:
    """Write what became of an attempt, unless another process has claimed the row since."""
    row.log[-1]["answer"] = answer
    ours = Delivery.objects.filter(pk=row.pk, attempts=row.attempts, status=Status.SENDING)
    ours.update(log=row.log, **columns)


def _attempt(session: httpx.Client, name: str, endpoint: Endpoint, row: Delivery) -> tuple[int, str]:
    """Send a delivery; return the status, 0 without an answer, and words for the log."""
    data = {**row.data, "entity": row.data["payment"] or row.pk.hex, "sequence": row.sequence}
    at = row.created_at.astimezone(UTC).isoformat()
    body = json.dumps({"type": row.type, "timestamp": at, "data": data}).encode()
    try:
        signed = signer(name, endpoint).sign(row.pk.hex, body, at=time.time())
        headers = {"Content-Type": "application/json", **signed}
        request = session.build_request("POST", endpoint.url, content=body, headers=headers)
        status = transport.status_of(session, request, bytes_max=ANSWER_BYTES_MAX)
    except (ProviderError, ConfigError, Unverifiable, httpx.InvalidURL) as error:
        return 0, str(error)
    return status, ANSWERED % {"status": status}
