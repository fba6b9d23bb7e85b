"""Notifications as they were received: the only writer of their table.

A row is the raw word of a provider and what became of it. `verdict` says that; a row that is there was not
therefore applied. The unique (channel, notification id) makes copies one row. What comes under a known id with
other content is kept beside it, in quarantine, under the id and the beginning of its digest.
"""

import json
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from idempotency.statements import Statement, instances, send
from payments.anomalies import file_anomaly, resolve_told
from payments.models import Anomaly, Attempt, Notification

Verdict = Notification.Verdict

_TABLE = Notification._meta.db_table
_KNOWN = ("id", "channel", "notification_id", "digest", "verdict")  # in the model's order
_FIND = f"""
SELECT {", ".join(_KNOWN)} FROM {_TABLE} WHERE channel = %s AND notification_id = %s
"""  # noqa: S608  our own names
_KEEP = f"""
INSERT INTO {_TABLE} (channel, notification_id, event_type, headers, body, digest, verdict, out_trade_no,
    detail, attempts, processed_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, '', 1, statement_timestamp())
"""  # noqa: S608


def find(row: Notification, *also: Statement) -> tuple[Notification | None, list[list[tuple[Any, ...]]]]:
    """The kept row of this id; and, asked in the same round trip, what `also` finds."""
    found, *others = send(Statement(_FIND, [row.channel, row.notification_id]), *also)
    return next(iter(instances(Notification, _KNOWN, found)), None), others


def keep(row: Notification, *, verdict: Notification.Verdict) -> Statement:
    """What keeps it with what became of it; its unique id refuses it if a twin was faster.

    To be sent in the transaction of its effect.
    """
    what = (row.channel, row.notification_id, row.event_type, json.dumps(row.headers), row.body)
    return Statement(_KEEP, [*what, row.digest, verdict.value, row.out_trade_no], rows=1, certain=True)


def settle(known: Notification, *, verdict: Notification.Verdict) -> None:
    """A row that was kept before has been processed again, and is done now.

    Transaction: the one of its effect.
    """
    Notification.objects.filter(pk=known.pk).update(
        verdict=verdict, processed_at=Now(), detail="", attempts=F("attempts") + 1
    )
    resolve_told(
        Anomaly.Kind.NOTIFICATION_FAILED,
        channel=known.channel,
        reference=known.notification_id,
        resolution="processed later",
    )


def keep_failed(row: Notification, *, error: Exception) -> None:
    """Keep its bytes although its effect failed and was rolled back, and file that.

    One that was applied meanwhile stays so, and nobody is called to it.

    Transaction: opens its own.
    """
    detail = f"{type(error).__name__}: {error}"[:2000]
    row.verdict, row.processed_at, row.detail, row.attempts = Verdict.ERROR, None, detail, 0
    failed = Notification.objects.filter(
        channel=row.channel, notification_id=row.notification_id, verdict=Verdict.ERROR
    )
    with transaction.atomic():
        Notification.objects.bulk_create([row], ignore_conflicts=True)
        # under the row's lock: a copy that settles it meanwhile comes before, or after and resolves what is filed
        if failed.update(detail=detail, attempts=F("attempts") + 1):
            file_anomaly(
                Anomaly.Kind.NOTIFICATION_FAILED,
                channel=row.channel,
                reference=row.notification_id,
                detail={"error": detail},
            )


def quarantine(row: Notification) -> None:
    """Keep what came under an id that we know with other content, once; a person decides about it.

    Transaction: needs the caller's.
    """
    row.notification_id = f"{row.notification_id[:100]}#{row.digest[:24]}"
    row.verdict, row.processed_at = Verdict.QUARANTINED, Now()
    Notification.objects.bulk_create([row], ignore_conflicts=True)


def release_held(attempt: Attempt, *, facts: int) -> None:
    """So many facts about the attempt waited for its payment, and count now; and so do their notifications.

    Transaction: the one in which they begin to count.
    """
    if not facts:
        return
    Notification.objects.filter(
        channel=attempt.channel, out_trade_no=attempt.out_trade_no, verdict=Verdict.HELD
    ).update(verdict=Verdict.APPLIED, detail="it came before its payment, and was applied after it")
