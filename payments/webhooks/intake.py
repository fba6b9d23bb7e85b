"""Notifications of payment providers: verified, kept, applied and only then acknowledged.

A notification and its effect commit in one transaction under the unique (channel, notification id); a copy finds
the row and is acknowledged. Where the effect fails, all of it rolls back, the raw bytes are kept with the verdict
`error`, and the provider is asked to send again. Where what it says fits in no column, no copy would do better:
it is kept with the verdict `anomaly`, and acknowledged. What is not genuine leaves nothing but a counter, and
causes no outbound call.

Every copy is acknowledged on the database's word alone. The nonces that Redis remembers decide nothing: they tell
a copy that the provider signed anew from bytes that somebody on the way sent again.
"""

import contextvars
import hashlib
import json
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import DataError, transaction
from prometheus_client import Counter

from idempotency.locks import ExpiringSet
from idempotency.postgres.availability import database_is_away
from idempotency.postgres.statements import DIVISION_BY_ZERO, send
from idempotency.postgres.unit import UnitOfWork
from payments.attempts import services
from payments.channels.sharing import shared
from payments.errors import ChannelUnavailable, NotificationMalformed, SignatureInvalid
from payments.models import Notification
from payments.providers.base import Fact, Notice
from payments.providers.documents import is_keepable
from payments.refunds import steps as refunds
from payments.settlement import inbox, read
from payments.settlement.anomalies import file_anomaly
from payments.settlement.apply import settle_on
from payments.settlement.decide import Outcome
from payments.settlement.inbox import Received, Stored
from payments.settlement.settle import until_settled
from payments.settlement.state import PaymentState
from payments.states import AnomalyKind

log = logging.getLogger(__name__)

Verdict = Notification.Verdict

RECEIVED = Counter(
    "payonce_notifications", "Genuine notifications by what became of them.", ["channel", "verdict"]
)
REFUSED = Counter("payonce_notifications_refused", "Notifications that were refused.", ["channel", "reason"])

REPLAYED = Counter(
    "payonce_notifications_replayed",
    "Genuine notifications whose very bytes and signature had been handled before.",
    ["channel"],
)

# a genuine time stamp may be 300 s ahead, and is good until it is 300 s old
NONCE_SECONDS = 600.0

MAX_BODY_BYTES = 65_536  # no genuine notification is near it

_SIGNED_HEADERS = ("Wechatpay-Serial", "Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Signature")
KEPT_HEADERS = (*_SIGNED_HEADERS, "Stripe-Signature", "Content-Type")  # all that is read or kept


class NotStored(Exception):
    """The database is away: we do not know that it was kept, so the notification must be sent again."""


class ProcessingFailed(Exception):
    """The notification is genuine and kept, but its effect failed: it must be sent, or processed, again."""


def receive(*, channel: str, headers: dict[str, str], body: bytes) -> str:
    """Take one notification in.

    Args:
        channel: ``wechat``, ``alipay`` or ``stripe``.
        headers: of the request, those of `KEPT_HEADERS`.
        body: as received.

    Returns:
        The verdict; the notification and its effect are durable and may be acknowledged.

    Raises:
        SignatureInvalid, NotificationMalformed: refused; nothing was stored.
        ProcessingFailed: kept, not applied.
        NotStored: the database is away.

    Transaction: opens its own. No network.
    """
    try:
        if len(body) > MAX_BODY_BYTES:
            raise NotificationMalformed("larger than any notification")
        notice = services.provider(channel).read_notification(headers=headers, body=body, now=datetime.now(UTC))
    except (SignatureInvalid, NotificationMalformed, ChannelUnavailable) as error:
        REFUSED.labels(channel, type(error).__name__).inc()
        log.warning("%s notification refused: %s", channel, error)
        if isinstance(error, ChannelUnavailable):
            raise SignatureInvalid("this channel is not configured here") from error
        raise
    try:
        verdict = _take_in(channel, notice, headers=headers, body=body)
    except Exception as error:
        if database_is_away(error):
            raise NotStored(notice.notification_id) from error
        raise
    RECEIVED.labels(channel, verdict).inc()
    if verdict == Verdict.ERROR:
        raise ProcessingFailed(notice.notification_id)
    _remember_nonce(channel, headers=headers, body=body)
    return verdict


def _remember_nonce(channel: str, *, headers: dict[str, str], body: bytes) -> None:
    """Count a genuine, handled notification that came before with the same signature over the same bytes.

    Redis is told and its answer not awaited: it is counted when that is read, by a later command of this process.
    """
    if "Wechatpay-Nonce" not in headers:
        return  # Alipay signs no nonce
    signed = "\n".join(headers.get(name, "") for name in _SIGNED_HEADERS).encode()
    member = hashlib.sha256(signed + b"\n" + body).hexdigest()

    noted_by = contextvars.copy_context()  # whoever reads the answer, the line belongs to this request

    def replayed() -> None:
        REPLAYED.labels(channel).inc()
        log.info("a %s notification came again byte for byte, not signed anew", channel)

    def note(redis: object) -> None:
        ExpiringSet(f"{channel}-nonce", ttl_seconds=NONCE_SECONDS, client=redis).note(
            member, known=partial(noted_by.run, replayed)
        )

    # without Redis none is counted, which is safe: nothing but a metric hangs on it
    shared("notification nonces", note, otherwise=None)


def replay(notification_pk: int) -> str:
    """Process a kept notification again, whatever became of it; its facts still count once only.

    Its bytes are verified as of the moment when they came, with the keys that we hold now.

    Args:
        notification_pk: of its row.

    Returns:
        The verdict about this time; its row has it too, unless nothing has changed (see `inbox.settle`).

    Raises:
        Notification.DoesNotExist: there is none.
        SignatureInvalid, NotificationMalformed: our keys no longer verify or read it; nothing changed.
        ChannelUnavailable: its channel is not configured any more; nothing changed.
        ProcessingFailed: it failed again, for this reason; what had never been processed keeps it.

    Transaction: opens its own. No network.
    """
    row = Notification.objects.get(pk=notification_pk)
    notice, came = _read_again(row), inbox.as_received(row)
    try:
        with transaction.atomic():
            work = UnitOfWork()
            state = read.state_for(notice.facts, lock=True) if notice.facts else None
            verdict = _settle(work, state, notice, channel=row.channel, is_locked=True)
            work.flush()
            inbox.settle(came, verdict=verdict)
    except Exception as error:
        if database_is_away(error):
            raise
        log.exception("%s notification %s could not be applied again", row.channel, row.notification_id)
        inbox.keep_failed(came, error=error, for_good=_fits_nowhere(error))
        raise ProcessingFailed(inbox.why(error)) from error
    return verdict


def _take_in(channel: str, notice: Notice, *, headers: dict[str, str], body: bytes) -> str:
    came = Received(
        channel=channel,
        notification_id=notice.notification_id,
        event_type=notice.event_type,
        headers=headers,
        body=body,
        digest=_digest(notice),
        out_trade_no=_number_of(notice),
    )
    try:
        return until_settled(partial(_apply, came, notice))
    except Exception as error:
        if database_is_away(error):  # or gave up on us: it would not keep the notification either
            raise
        log.exception("%s notification %s could not be applied", channel, notice.notification_id)
        for_good = _fits_nowhere(error)
        inbox.keep_failed(came, error=error, for_good=for_good)
        return Verdict.ANOMALY if for_good else Verdict.ERROR


def _fits_nowhere(error: Exception) -> bool:
    """Whether applying it failed because of what it says: PostgreSQL or its driver could not take a value.

    A division by zero is how our own statements fail that must change a row and change none.
    """
    if isinstance(error, DataError):
        return getattr(error.__cause__, "sqlstate", None) != DIVISION_BY_ZERO
    return isinstance(error, UnicodeError)


def _number_of(notice: Notice) -> str:
    """What the row is searched by; one that no column could hold must not keep the row itself from being kept."""
    number = notice.facts[0].out_trade_no if notice.facts else ""
    return number if is_keepable(number, most=64) else ""


def _apply(received: Received, notice: Notice, lock: bool) -> str:
    """Settle the facts and store the notification with them, unless a copy did; its unique id is the judge."""
    stored, state = _look(received, notice)
    if stored is not None and not _says_the_same(stored, received):
        return _quarantined(received, stored)
    if stored is not None and stored.verdict != Verdict.ERROR:
        return Verdict.DUPLICATE
    with transaction.atomic():
        if lock and notice.facts:
            state = read.state_for(notice.facts, lock=True)
        work = UnitOfWork()
        verdict = _settle(work, state, notice, channel=received.channel, is_locked=lock)
        if stored is None:
            work.add(inbox.keep(received, verdict=verdict))
            work.flush(commit=True)
        else:
            work.flush()
            inbox.settle(received, verdict=verdict)
    return verdict


def _look(received: Received, notice: Notice) -> tuple[Stored | None, PaymentState | None]:
    """Find what is stored under its id, and what is known of its payment, in one round trip."""
    finding, reading = inbox.finding(received), read.reading_for(notice.facts) if notice.facts else None
    try:
        found, *state = send(finding, *([reading] if reading else []))
    except (DataError, UnicodeError):  # what it says cannot even be asked for
        stored = inbox.found(*send(finding))
        if stored is None or stored.verdict == Verdict.ERROR:
            raise
        return stored, None
    return inbox.found(found), read.state_of(*state) if state else None


def _quarantined(received: Received, stored: Stored) -> str:
    """Store a notification beside the one that says something else under the same id; a person decides."""
    with transaction.atomic():
        if inbox.quarantine(received):
            file_anomaly(
                AnomalyKind.CONTENT_CHANGED,
                channel=received.channel,
                reference=received.notification_id,
                detail={"first_sha256": stored.digest, "sha256": received.digest},
            )
    return Verdict.QUARANTINED


def _settle(
    work: UnitOfWork, state: PaymentState | None, notice: Notice, *, channel: str, is_locked: bool
) -> Notification.Verdict:
    """Settle every fact; of their outcomes, return the verdict that a person should see."""
    outcomes = settle_on(work, state, notice.facts, source="notification", is_locked=is_locked)
    if notice.refund is not None:
        work.flush()
        if refunds.take_news(notice.refund, channel=channel):
            outcomes.append(Outcome.ANOMALY)
    for outcome in (Outcome.ANOMALY, Outcome.HELD, Outcome.APPLIED, Outcome.DUPLICATE):
        if outcome in outcomes:
            return Verdict(outcome.value)
    return Verdict.IGNORED


def _read_again(row: Notification) -> Notice:
    """What a kept notification says to today's code and keys, judged as of the moment when it came."""
    return services.provider(row.channel).read_notification(
        headers=row.headers, body=bytes(row.body), now=row.received_at
    )


def _says_the_same(known: Stored, came: Received) -> bool:
    """Whether a copy says what the kept one does.

    A digest is as old as the code that made it; where they differ, the kept bytes are read by the same code as the
    copy's. If our keys do not verify them any more, the digest is all that there is.
    """
    if known.digest == came.digest:
        return True
    try:
        return _digest(_read_again(inbox.row(came))) == came.digest
    except (SignatureInvalid, NotificationMalformed, ChannelUnavailable) as error:
        log.info("%s notification %s, as kept, cannot be read: %s", came.channel, came.notification_id, error)
        return False


def _digest(notice: Notice) -> str:
    """Of what the notification says; its bytes differ between copies, because each is encrypted anew.

    It is kept with the row, so what it is made of is named here and follows from no class's looks.
    """
    told: list[Any] = [notice.event_type, [_told(fact) for fact in notice.facts]]
    if (news := notice.refund) is not None:
        told.append([news.status.value, news.out_refund_no, news.message])
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _told(fact: Fact) -> list[str | int | None]:
    at = fact.occurred_at
    return [
        fact.kind.value,
        fact.channel,
        fact.merchant,
        fact.out_trade_no,
        fact.provider_txn_id,
        fact.amount_minor,
        fact.currency,
        None if at is None else at.astimezone(UTC).isoformat(),
        fact.out_refund_no,
        fact.paid_txn_id,
        fact.paid_minor,
        *(["whole"] if fact.is_whole else []),  # rows from before it was told have no such member
    ]
