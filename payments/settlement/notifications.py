"""Notifications as received: the only writer of their table.

The unique (channel, notification id) makes copies one row; its `verdict` says what became of it. Other content
under a known id is stored beside it, in quarantine. What is `received` is the row that a genuine notification may
become. `detail` says why one failed: as an `error` it is processed again when its next copy arrives, as an
`anomaly` or in quarantine only when a person asks for it. An anomaly without `detail` was processed.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from idempotency.postgres.statements import Statement
from idempotency.response.redaction import reason_of
from payments.models import Notification
from payments.settlement import queries
from payments.settlement.anomalies import file_anomaly, resolve_named
from payments.states import AnomalyKind

Verdict = Notification.Verdict

_CHANGED_NOTHING = frozenset({Verdict.DUPLICATE, Verdict.HELD, Verdict.IGNORED})
_SAID = ("account_key", "event_type", "headers", "body", "digest", "out_trade_no")
_FAILED = Q(verdict=Verdict.ERROR) | (Q(verdict=Verdict.ANOMALY) & ~Q(detail=""))
_NOT_PROCESSED = _FAILED | Q(verdict=Verdict.QUARANTINED)


class Stored(NamedTuple):
    """Row stored under a notification's id."""

    digest: str
    verdict: str
    account_key: str


def finding(received: Notification) -> Statement:
    """Make the statement that looks for the notification stored under its id, for `found`."""
    return Statement(queries.FIND_NOTIFICATION, [received.channel, received.notification_id])


def found(rows: Sequence[tuple[Any, ...]]) -> Stored | None:
    """Read the stored notification from the rows of `finding`."""
    return Stored(*rows[0]) if rows else None


def rows_of(received: Notification) -> QuerySet[Notification]:
    return Notification.objects.filter(channel=received.channel, notification_id=received.notification_id)


def storing(received: Notification, *, verdict: Notification.Verdict) -> Statement:
    """Make the statement that stores it with its verdict, for the transaction of its effect."""
    values = (
        *(received.channel, received.account_key, received.notification_id, received.event_type),
        *(json.dumps(received.headers), received.body, received.digest, verdict.value, received.out_trade_no),
    )
    return Statement(queries.STORE_NOTIFICATION, values, rows=1, certain=True)


def finish(received: Notification, *, verdict: Notification.Verdict) -> bool:
    """Record that a stored notification was processed again; return if that counted.

    Where that changed nothing, a processed one keeps its verdict: an early one goes on waiting for its payment,
    and an anomaly is still one. Only what failed, was in quarantine or ignored takes the new verdict in any case.

    Transaction: the one of its effect, which holds the payment's lock.
    """
    rows = rows_of(received)
    rows.update(processed_at=Now(), attempts=F("attempts") + 1, out_trade_no=received.out_trade_no)
    if verdict in _CHANGED_NOTHING:
        rows = rows.filter(_NOT_PROCESSED | Q(verdict=Verdict.IGNORED))
    has_new = bool(rows.update(verdict=verdict, detail="", account_key=received.account_key))
    resolve_named(
        AnomalyKind.NOTIFICATION_FAILED,
        channel=received.channel,
        reference=received.notification_id,
        resolution="processed later",
    )
    return has_new


def end_hold(held: Notification, *, verdict: str) -> None:
    """Give a held notification its last verdict, unless another process has."""
    rows_of(held).filter(verdict=Verdict.HELD).update(verdict=verdict)


def store_failed(received: Notification, *, error: Exception, for_good: bool) -> None:
    """Store a notification although its effect failed and was rolled back, and file an anomaly.

    One that has been processed before or meanwhile stays as it is, without an anomaly. Where every copy would fail
    alike, `for_good`, it is acknowledged, and an anomaly from now on.

    Transaction: opens its own.
    """
    detail = reason_of(error)
    unprocessed = rows_of(received).filter(_NOT_PROCESSED)
    received.verdict, received.detail, received.attempts = Verdict.ERROR, detail, 0
    with transaction.atomic():
        Notification.objects.bulk_create([received], ignore_conflicts=True)
        # under the row's lock: a copy that succeeds meanwhile comes before, or after and resolves what is filed
        row = unprocessed.select_for_update(no_key=True).first()
        if row is None:
            return
        acknowledged = for_good or row.verdict != Verdict.ERROR
        change: dict[str, Any] = {"detail": detail, "attempts": F("attempts") + 1}
        if acknowledged and row.verdict != Verdict.QUARANTINED:
            change |= {"verdict": Verdict.ANOMALY, "processed_at": Now()}
        unprocessed.update(**change)
        file_failed(received, reason=detail, acknowledged=acknowledged)


def file_failed(received: Notification, *, reason: str, acknowledged: bool) -> None:
    """File an anomaly of a notification whose effect failed; `finish` resolves it."""
    file_anomaly(
        AnomalyKind.NOTIFICATION_FAILED,
        channel=received.channel,
        reference=received.notification_id,
        # the first line: further ones name rows and times, so each copy would be new work
        detail={"error": reason.partition("\n")[0]} | ({"acknowledged": "yes"} if acknowledged else {}),
    )


def quarantine(received: Notification) -> bool:
    """Store other content under a known id, for a person to decide; return whether it is new.

    Transaction: needs the caller's.
    """
    number = f"{received.notification_id[:100]}#{received.digest[:24]}"
    said = {name: getattr(received, name) for name in _SAID}
    _, is_new = Notification.objects.get_or_create(
        channel=received.channel,
        notification_id=number,
        defaults={**said, "verdict": Verdict.QUARANTINED, "processed_at": Now()},
    )
    return is_new
