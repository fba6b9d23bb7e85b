"""Take notifications in, for any provider.

A notification and its effect commit in one transaction under the unique (channel, notification id); a copy finds
the row and is acknowledged. If the effect fails, the raw bytes are stored with the verdict `error`, and the
provider is asked to send again; if no column can hold what it says, with the verdict `anomaly`, and acknowledged.
"""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from django.db import DataError, transaction
from django.utils import timezone
from prometheus_client import Counter

from idempotency.postgres.availability import database_is_away
from idempotency.postgres.statements import DIVISION_BY_ZERO, Statement, UnitOfWork, send
from idempotency.response.redaction import reason_of
from payments.attempts import calling
from payments.channels.accounts import key_of
from payments.errors import ChannelUnavailable, NotificationMalformed, OutcomeUnknown, SignatureInvalid
from payments.models import Notification
from payments.providers.base import Notice, Provider
from payments.providers.documents import NUMBER_MAX, is_keepable
from payments.refunds import steps as refunds
from payments.settlement import backoff, events, notifications, queries, read
from payments.settlement.anomalies import file_anomaly
from payments.settlement.apply import settle_on
from payments.settlement.decision import Outcome
from payments.settlement.notifications import Stored
from payments.settlement.settle import until_settled
from payments.settlement.state import PaymentState, as_id
from payments.states import AnomalyKind
from payments.webhooks.digest import digest_of

log = logging.getLogger(__name__)

Verdict = Notification.Verdict

RECEIVED = Counter(
    "payonce_notifications", "Genuine notifications by what became of them.", ["channel", "verdict"]
)
REFUSED = Counter("payonce_notifications_refused", "Notifications that were refused.", ["channel", "reason"])

MAX_BODY_BYTES = 65_536  # no genuine notification is near it
UNREADABLE = (SignatureInvalid, NotificationMalformed, ChannelUnavailable)
EARLY = timedelta(days=3)  # as long as providers send again, so a payment may be notified after its dispute


class NotStored(Exception):
    """The database is away: the notification may not be stored, so it must be sent again."""


class ProcessingFailed(Exception):
    """Genuine, stored notification without its effect yet: to be sent or processed again."""


def receive(*, account: str, headers: dict[str, str], body: bytes) -> str:
    """Take one notification in.

    Args:
        account: to whose address it was sent, a name in ``PROVIDERS``.
        headers: those of `Plugin.headers` that the request has; they are stored.

    Returns:
        The verdict; the notification and its effect are durable and may be acknowledged.

    Raises:
        SignatureInvalid, NotificationMalformed: refused; nothing was stored.
        ProcessingFailed: stored, not applied.
        NotStored: the database is away.

    Transaction: opens its own. No network.
    """
    provider, notice = _verified(account, headers, body)
    received = Notification(
        channel=provider.channel,
        account_key=key_of(account, provider.channel),
        notification_id=notice.notification_id,
        event_type=notice.event_type,
        headers=headers,
        body=body,
        digest=digest_of(notice),
    )
    try:
        verdict = _take_in(received, notice)
    except Exception as error:
        if database_is_away(error):
            raise NotStored(notice.notification_id) from error
        raise
    RECEIVED.labels(account, verdict).inc()
    if verdict == Verdict.ERROR:
        raise ProcessingFailed(notice.notification_id)
    return verdict


def replay(notification_pk: int) -> str:
    """Process a stored notification again, by today's keys; its facts still count once only.

    Returns:
        The verdict of this time; its row has it too, unless nothing has changed (see `notifications.finish`).

    Raises:
        Notification.DoesNotExist: there is none.
        SignatureInvalid, NotificationMalformed: our keys no longer verify or read it; nothing changed.
        ChannelUnavailable: its account is no longer configured; nothing changed.
        ProcessingFailed: it failed again, for this reason; what had never been processed keeps it.

    Transaction: opens its own. No network.
    """
    row = Notification.objects.get(pk=notification_pk)
    notice = _read_again(row)
    try:
        notice = _named(row, notice)
        with transaction.atomic():
            state = read.state_for(notice.facts, lock=True) if notice.facts else None
            work = UnitOfWork()
            verdict = _settle(work, state, notice, row, is_locked=True)
            work.flush()
            if notifications.finish(row, verdict=verdict) and _is_early(row, verdict):
                _come_again(row)
    except Exception as error:
        if database_is_away(error):
            raise
        log.exception("%s notification %s could not be applied again", row.account, row.notification_id)
        notifications.store_failed(row, error=error, for_good=_fits_nowhere(error))
        raise ProcessingFailed(reason_of(error)) from error
    return verdict


def replay_early(notification_pk: int) -> None:
    """Process a dispute again that came before its payment; until `EARLY`, come again.

    Raises as `replay`, and files an anomaly.

    Transaction: NONE may be open.
    """
    row = Notification.objects.get(pk=notification_pk)
    if row.verdict != Verdict.HELD:
        return
    try:
        verdict = replay(row.pk)
    except (*UNREADABLE, ProcessingFailed) as error:
        notifications.file_failed(row, reason=str(error), acknowledged=True)
        raise
    if verdict == Verdict.HELD and row.received_at > timezone.now() - EARLY:
        _come_again(row)
    else:
        notifications.end_hold(row, verdict=Verdict.IGNORED if verdict == Verdict.HELD else verdict)


def _is_early(row: Notification, verdict: str) -> bool:
    """Check for a held dispute, which no settlement finds: the number of its trade is unknown."""
    return verdict == Verdict.HELD and not row.out_trade_no


def _come_again(row: Notification) -> None:
    """Queue a held dispute, later each time."""
    later = backoff.delay_seconds(row.attempts - 1)
    events.defer("payments.replay_early", in_seconds=later, notification_pk=row.pk)


def _verified(account: str, headers: dict[str, str], body: bytes) -> tuple[Provider, Notice]:
    try:
        if len(body) > MAX_BODY_BYTES:
            raise NotificationMalformed("larger than any notification")
        provider = calling.provider(account)
        return provider, provider.read_notification(headers=headers, body=body, now=datetime.now(UTC))
    except UNREADABLE as error:
        REFUSED.labels(account, type(error).__name__).inc()
        log.warning("%s notification refused: %s", account, error)
        if isinstance(error, ChannelUnavailable):
            raise SignatureInvalid("this account is not configured here") from error
        raise


def _take_in(received: Notification, notice: Notice) -> str:
    try:
        return until_settled(partial(_apply, received, _named(received, notice)))
    except Exception as error:
        if database_is_away(error):  # or gave up on us: it would not store the notification either
            raise
        log.exception("%s notification %s could not be applied", received.account, received.notification_id)
        for_good = _fits_nowhere(error)
        notifications.store_failed(received, error=error, for_good=for_good)
        return Verdict.ANOMALY if for_good else Verdict.ERROR


def _apply(received: Notification, notice: Notice, work: UnitOfWork, lock: bool) -> str:
    """Settle the facts and store the notification with them, unless a copy did."""
    stored, state = _look(received, notice)
    is_new = stored is None
    if stored is not None:
        if not _says_the_same(stored, received):
            return _quarantine(received, stored)
        # a copy that was sent to another account's address says nothing about this one's
        if stored.verdict != Verdict.ERROR and stored.account_key == received.account_key:
            return Verdict.DUPLICATE
    with transaction.atomic():
        if lock and notice.facts:
            state = read.state_for(notice.facts, lock=True)
        verdict = _settle(work, state, notice, received, is_locked=lock)
        if is_new:
            work.add(notifications.storing(received, verdict=verdict))
        is_early = _is_early(received, verdict)
        work.flush(commit=is_new and not is_early)
        if (is_new or notifications.finish(received, verdict=verdict)) and is_early:
            _come_again(notifications.rows_of(received).get())
    return verdict


def _look(received: Notification, notice: Notice) -> tuple[Stored | None, PaymentState | None]:
    """Find what is stored under its id, and what is known of its payment, in one round trip."""
    finding = notifications.finding(received)
    try:
        reading = read.reading_for(notice.facts) if notice.facts else None
        found, *rows = send(finding, *([reading] if reading else []))
    except OutcomeUnknown:  # what it says cannot even be asked for
        stored = notifications.found(*send(finding))
        if stored is None or stored.verdict == Verdict.ERROR:
            raise
        return stored, None
    return notifications.found(found), read.state_of(rows[0]) if rows else None


def _quarantine(received: Notification, stored: Stored) -> str:
    """Store a notification that contradicts the one with its id; a person decides."""
    with transaction.atomic():
        if notifications.quarantine(received):
            file_anomaly(
                AnomalyKind.CONTENT_CHANGED,
                channel=received.channel,
                reference=received.notification_id,
                detail={"first_sha256": stored.digest, "sha256": received.digest},
            )
    return Verdict.QUARANTINED


def _settle(
    work: UnitOfWork, state: PaymentState | None, notice: Notice, received: Notification, *, is_locked: bool
) -> Notification.Verdict:
    """Settle every fact; of their outcomes, return the verdict that a person should see."""
    if state is not None:
        state = replace(state, account=received.account)
    outcomes = settle_on(work, state, notice.facts, source="notification", is_locked=is_locked)
    if notice.refund is not None:
        work.flush()
        if refunds.take_notice(notice.refund, channel=received.channel, account_key=received.account_key):
            outcomes.append(Outcome.ANOMALY)
    if approved := as_id(notice.out_trade_no):
        work.add(Statement(queries.ASK_SOON, [approved]))
    for outcome in (Outcome.ANOMALY, Outcome.HELD, Outcome.APPLIED, Outcome.DUPLICATE):
        if outcome in outcomes:
            return Verdict(outcome.value)
    return Verdict.IGNORED


def _fits_nowhere(error: Exception) -> bool:
    """Check if applying it failed because PostgreSQL cannot take a value of it."""
    if isinstance(error, DataError):  # a division by zero is how our statements fail that must change a row
        return getattr(error.__cause__, "sqlstate", None) != DIVISION_BY_ZERO
    return isinstance(error, OutcomeUnknown | UnicodeError)


def _named(row: Notification, notice: Notice) -> Notice:
    """Name the trade it is about, by its facts or its row, where a column can hold that."""
    notice = replace(notice, facts=read.numbered(notice.facts))
    number = notice.facts[0].out_trade_no if notice.facts else ""
    row.out_trade_no = number if is_keepable(number, most=NUMBER_MAX) else ""
    return notice


def _read_again(row: Notification) -> Notice:
    """Read a stored notification with today's code and keys, as of the moment when it arrived."""
    return calling.provider(row.account).read_notification(
        headers=row.headers, body=bytes(row.body), now=row.received_at.astimezone(UTC)
    )


def _says_the_same(stored: Stored, received: Notification) -> bool:
    """Check if a copy says what is stored, whose digest an earlier version may have made."""
    if stored.digest == received.digest:
        return True
    try:
        return digest_of(_read_again(notifications.rows_of(received).get())) == received.digest
    except UNREADABLE as error:
        log.info("stored %s notification %s cannot be read: %s", received.account, received.notification_id, error)
        return False
