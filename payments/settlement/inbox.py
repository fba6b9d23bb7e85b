"""Notifications as they were received: the only writer of their table.

A row is the raw word of a provider and what became of it. `verdict` says that; a row that is there was not
therefore applied. The unique (channel, notification id) makes copies one row. What comes under a known id with
other content is kept beside it, in quarantine, under the id and the beginning of its digest.

One that failed has `detail`, which says why: as an `error` it is processed again when its next copy arrives, as an
`anomaly` only when a person asks for it. An anomaly without `detail` was processed, and is one by what it tells.
One in quarantine is processed when a person asks for it, and has `detail` if that failed.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from idempotency.postgres.statements import Statement
from idempotency.response.redaction import without_details
from payments.models import Notification
from payments.settlement.anomalies import file_anomaly, resolve_named
from payments.states import AnomalyKind

Verdict = Notification.Verdict

_CHANGED_NOTHING = frozenset({Verdict.DUPLICATE, Verdict.IGNORED})
_FAILED = Q(verdict=Verdict.ERROR) | (Q(verdict=Verdict.ANOMALY) & ~Q(detail=""))
_NOT_PROCESSED = _FAILED | Q(verdict=Verdict.QUARANTINED)

_TABLE = Notification._meta.db_table
_FIND = f"SELECT digest, verdict FROM {_TABLE} WHERE channel = %s AND notification_id = %s"  # noqa: S608  our own names
_KEEP = f"""
INSERT INTO {_TABLE} (channel, notification_id, event_type, headers, body, digest, verdict, out_trade_no,
    detail, attempts, processed_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, '', 1, statement_timestamp())
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Received:
    """A notification as it came: genuine, new or not.

    Attributes:
        digest: of what it says.
        out_trade_no: what its row is searched by; may be empty.
    """

    channel: str
    notification_id: str
    event_type: str
    headers: dict[str, str]
    body: bytes
    digest: str
    out_trade_no: str


class Stored(NamedTuple):
    """What is known of the one that was kept under its id."""

    digest: str
    verdict: str


def finding(received: Received) -> Statement:
    """Make the statement that looks for the notification stored under its id, for `found`."""
    return Statement(_FIND, [received.channel, received.notification_id])


def found(rows: Sequence[tuple[Any, ...]]) -> Stored | None:
    """Make of what `finding` returned the notification that is stored."""
    return Stored(*rows[0]) if rows else None


def row(came: Received) -> Notification:
    """The one that was kept under its id.

    Raises:
        Notification.DoesNotExist: there is none.
    """
    return Notification.objects.get(channel=came.channel, notification_id=came.notification_id)


def as_received(row: Notification) -> Received:
    """A kept one as it came."""
    values = {field.name: getattr(row, field.name) for field in fields(Received)}
    return Received(**{**values, "body": bytes(row.body)})


def keep(came: Received, *, verdict: Notification.Verdict) -> Statement:
    """What keeps it with what became of it; its unique id refuses it if a twin was faster.

    To be sent in the transaction of its effect.
    """
    what = (came.channel, came.notification_id, came.event_type, json.dumps(came.headers), came.body)
    return Statement(_KEEP, [*what, came.digest, verdict.value, came.out_trade_no], rows=1, certain=True)


def settle(came: Received, *, verdict: Notification.Verdict) -> None:
    """One that was kept before has been processed again, and is done now.

    Where that changed nothing, one that had been processed stays what it was then: what waits for its payment goes
    on waiting, and an anomaly is still one. Only what had failed or was put aside takes the verdict in any case.

    Transaction: the one of its effect; what waits is released under the payment's lock, which it holds.
    """
    kept = Notification.objects.filter(channel=came.channel, notification_id=came.notification_id)
    kept.update(processed_at=Now(), attempts=F("attempts") + 1)
    if verdict in _CHANGED_NOTHING:
        kept = kept.filter(_NOT_PROCESSED)
    kept.update(verdict=verdict, detail="")
    resolve_named(
        AnomalyKind.NOTIFICATION_FAILED,
        channel=came.channel,
        reference=came.notification_id,
        resolution="processed later",
    )


def why(error: Exception) -> str:
    """What a failure is kept as: without the values that PostgreSQL tells."""
    return f"{type(error).__name__}: {without_details(str(error))}"[:2000]


def keep_failed(came: Received, *, error: Exception, for_good: bool) -> None:
    """Keep its bytes although its effect failed and was rolled back, and file that.

    One that was processed meanwhile, or before, stays as it is, and nobody is called to it.

    Args:
        for_good: so would every copy. It is acknowledged, and from now on an anomaly.

    Transaction: opens its own.
    """
    detail = why(error)
    failed = Notification.objects.filter(
        _NOT_PROCESSED, channel=came.channel, notification_id=came.notification_id
    )
    with transaction.atomic():
        _keep_new(came, verdict=Verdict.ERROR, detail=detail, attempts=0)
        # under the row's lock: a copy that settles it meanwhile comes before, or after and resolves what is filed
        row = failed.select_for_update(no_key=True).first()
        if row is None:
            return
        acknowledged = for_good or row.verdict != Verdict.ERROR
        aside = row.verdict == Verdict.QUARANTINED
        done = {"verdict": Verdict.ANOMALY, "processed_at": Now()} if acknowledged and not aside else {}
        failed.update(detail=detail, attempts=F("attempts") + 1, **done)
        file_anomaly(
            AnomalyKind.NOTIFICATION_FAILED,
            channel=came.channel,
            reference=came.notification_id,
            # the row has all of it; further lines name rows and times, and each copy would be other work by them
            detail={"error": detail.partition("\n")[0]} | ({"acknowledged": "yes"} if acknowledged else {}),
        )


def quarantine(came: Received) -> bool:
    """Keep what came under an id that we know with other content, once; a person decides about it.

    Returns:
        Whether it is new; a further copy of it is not.

    Transaction: needs the caller's.
    """
    aside = asdict(replace(came, notification_id=f"{came.notification_id[:100]}#{came.digest[:24]}"))
    _, is_new = Notification.objects.get_or_create(
        channel=aside.pop("channel"),
        notification_id=aside.pop("notification_id"),
        defaults={**aside, "verdict": Verdict.QUARANTINED, "processed_at": Now()},
    )
    return is_new


def _keep_new(came: Received, **known: Any) -> None:
    """Its row with these columns too, unless there is one under its id."""
    Notification.objects.bulk_create([Notification(**asdict(came), **known)], ignore_conflicts=True)
