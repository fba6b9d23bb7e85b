"""Opening, asking about and closing payment attempts.

Every function that talks to a provider goes: commit what we are about to do under our own number, call with no
transaction and no row lock, commit what was said. So at any point where the process may die, the number to ask
for is known, and asking under it is all that is ever needed.
"""

import logging
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from payments import channels
from payments.errors import (
    ChannelUnavailable,
    MethodUnavailable,
    OrderAlreadyPaid,
    OutcomeUnknown,
    ProviderError,
    ProviderRejected,
)
from payments.models import Attempt, Payment
from payments.observations import apply_observation, rederive
from payments.providers.base import (
    NEEDED,
    NOBODY,
    Fact,
    NextAction,
    Payer,
    PayMethod,
    Provider,
    Trade,
    TradeStatus,
)
from payments.schedule import after
from payments.states import LIVE_ATTEMPTS, AttemptStatus

log = logging.getLogger(__name__)

_LIVE = [status.value for status in LIVE_ATTEMPTS]
_UNOPENED = [AttemptStatus.CREATED.value, AttemptStatus.UNCERTAIN.value]


class CloseResult(StrEnum):
    """How `close_payment` ended."""

    NONE = "none"  # there was no payment
    CLOSED = "closed"
    PAID = "paid"
    UNCERTAIN = "uncertain"  # a provider did not answer: try again


def provider(channel: str) -> Provider:
    """The configured provider of `channel`.

    Raises:
        ChannelUnavailable: it is not configured here.
    """
    try:
        return channels.current()[channel]
    except KeyError:
        raise ChannelUnavailable from None


def must_be_outside_transactions() -> None:
    """A provider may take seconds to answer; no row of ours may be locked for so long.

    Raises:
        RuntimeError: a transaction is open.
    """
    if transaction.get_connection().in_atomic_block:
        raise RuntimeError("a provider must not be called inside a transaction")


def open_attempt(
    *,
    order_id: UUID,
    owner_id: int,
    amount_minor: int,
    currency: str,
    channel: str,
    description: str,
    expires_at: datetime,
    method: PayMethod | None = None,
    payer: Payer = NOBODY,
) -> Attempt:
    """Commit to a number: the live attempt of this order by this channel and method, made if there is none.

    Args:
        order_id: the shop's; one payment each.
        owner_id: the user who may see the payment.
        amount_minor: what is to be paid, in minor units.
        currency: ISO 4217.
        channel: ``wechat``, ``alipay`` or ``stripe``.
        description: what the shopper's wallet shows, at most 127 bytes.
        expires_at: aware; the provider takes no money after it.
        method: one of the channel's; None is its first.
        payer: what the method must know of the shopper; kept until the attempt is open.

    Raises:
        OrderAlreadyPaid: money has been credited.
        ChannelUnavailable: the channel is not configured.
        MethodUnavailable: the channel has no such method.

    Transaction: needs the caller's, with the order's row locked, so that an order that is being closed gets no
    new attempt. Only inserts here; payment rows are not locked. No network.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("open_attempt needs a transaction")
    found = provider(channel)
    chosen = _chosen(found, method)
    # the insert that loses to a twin's committed payment leaves the twin's to be used
    Payment.objects.bulk_create(
        [Payment(order_id=order_id, owner_id=owner_id, amount_minor=amount_minor, currency=currency)],
        ignore_conflicts=True,
    )
    payment = Payment.objects.get(order_id=order_id)
    if payment.paid_minor:
        raise OrderAlreadyPaid
    live = live_attempt(order_id=order_id, channel=channel, method=chosen)
    if live is not None:
        return live
    return Attempt.objects.create(
        payment=payment,
        channel=channel,
        merchant=found.merchant,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        description=description,
        method=chosen.value,
        payer={name: getattr(payer, name) for name in [NEEDED.get(chosen)] if name},
        expires_at=expires_at,
        next_query_at=after(query_count=0),
    )


def live_attempt(*, order_id: UUID, channel: str, method: PayMethod | None) -> Attempt | None:
    """The order's attempt by this channel and method that may still be paid.

    Args:
        method: one of the channel's; None is its first.

    Raises:
        ChannelUnavailable, MethodUnavailable: as `open_attempt`.
    """
    chosen = _chosen(provider(channel), method)
    ways = Attempt.objects.filter(payment__order_id=order_id, channel=channel, method=chosen.value)
    return ways.filter(status__in=_LIVE).first()


def submit_attempt(attempt_id: UUID) -> Payment:
    """Open the attempt at its provider, or go on where an earlier run was cut off.

    Returns:
        The payment. An attempt whose outcome is not known is `uncertain`, and so is its payment.

    Raises:
        ProviderRejected: refused; the attempt has failed.
        ProviderUnavailable: the provider cannot be reached; the attempt stays to be submitted again.

    Transaction: NONE may be open. May run any number of times, also at once: the provider opens one trade a
    number.
    """
    must_be_outside_transactions()
    attempt = Attempt.objects.select_related("payment").get(pk=attempt_id)
    if attempt.status not in _UNOPENED:
        return attempt.payment
    channel = provider(attempt.channel)
    try:
        if attempt.submitted_at is not None and _ask_first(channel, attempt) is not TradeStatus.PENDING:
            attempt.refresh_from_db()
            if attempt.status not in _UNOPENED:
                return Payment.objects.get(pk=attempt.payment_id)
        if not Attempt.objects.filter(pk=attempt.pk, status__in=_UNOPENED).update(submitted_at=Now()):
            return Payment.objects.get(pk=attempt.payment_id)
        action = channel.create(
            out_trade_no=attempt.out_trade_no,
            amount_minor=attempt.amount_minor,
            currency=attempt.currency,
            description=attempt.description,
            notify_url=f"{settings.PUBLIC_URL}/webhooks/{attempt.channel}",
            return_url=f"{settings.PUBLIC_URL}/orders/{attempt.payment.order_id.hex}",
            expires_at=attempt.expires_at,
            method=PayMethod(attempt.method),
            payer=Payer(**attempt.payer),
        )
    except OutcomeUnknown as error:
        log.warning("attempt %s: outcome unknown: %s", attempt.out_trade_no, error)
        return _set(attempt, AttemptStatus.UNCERTAIN)
    except ProviderRejected as error:
        _set(attempt, AttemptStatus.FAILED, message=str(error)[:255])
        raise
    return _opened(channel, attempt, action)


def query_attempt(attempt_id: UUID) -> Payment:
    """Ask the provider what became of the attempt, and fold what it says.

    Raises:
        ProviderError: no trustworthy answer; nothing changed.

    Transaction: NONE may be open.
    """
    must_be_outside_transactions()
    attempt = Attempt.objects.get(pk=attempt_id)
    if attempt.is_live:
        _ask(provider(attempt.channel), attempt)
    return Payment.objects.get(pk=attempt.payment_id)


def close_payment(*, order_id: UUID) -> CloseResult:
    """Close every live attempt of the order at its provider, and fold what the providers say.

    Transaction: NONE may be open. The caller has made sure that no new attempt is opened meanwhile.
    """
    must_be_outside_transactions()
    payment = Payment.objects.filter(order_id=order_id).first()
    if payment is None:
        return CloseResult.NONE
    for attempt in payment.attempts.filter(status__in=_LIVE):
        try:
            trade = _close(provider(attempt.channel), attempt)
            if trade.status is TradeStatus.PAID and not trade.facts:
                trade = _query(provider(attempt.channel), attempt)
        except ProviderError as error:
            log.warning("attempt %s could not be closed: %s", attempt.out_trade_no, error)
            continue
        fold(trade.facts, source="close")
    payment.refresh_from_db()
    if payment.paid_minor:
        return CloseResult.PAID
    open_still = payment.attempts.filter(status__in=_LIVE).exists()
    return CloseResult.UNCERTAIN if open_still else CloseResult.CLOSED


def fold(facts: tuple[Fact, ...], *, source: str) -> None:
    """Fold facts in one transaction of their own."""
    with transaction.atomic():
        for fact in facts:
            apply_observation(fact, source=source)


def _chosen(channel: Provider, method: PayMethod | None) -> PayMethod:
    chosen = method or channel.methods[0]
    if chosen not in channel.methods:
        raise MethodUnavailable
    return chosen


def _query(channel: Provider, attempt: Attempt) -> Trade:
    return channel.query(out_trade_no=attempt.out_trade_no, reference=attempt.reference)


def _close(channel: Provider, attempt: Attempt) -> Trade:
    return channel.close(out_trade_no=attempt.out_trade_no, reference=attempt.reference)


def _ask(channel: Provider, attempt: Attempt) -> TradeStatus:
    trade = _query(channel, attempt)
    fold(trade.facts, source="query")
    return trade.status


def _ask_first(channel: Provider, attempt: Attempt) -> TradeStatus:
    """As `_ask`; a question that is refused (too many of them, say) leaves the trade as unknown as it was."""
    try:
        return _ask(channel, attempt)
    except ProviderRejected as error:
        raise OutcomeUnknown(f"the question was refused: {error}") from error


def _set(attempt: Attempt, status: AttemptStatus, *, message: str = "") -> Payment:
    with transaction.atomic():
        payment = Payment.objects.select_for_update(no_key=True).get(pk=attempt.payment_id)
        changed = Attempt.objects.filter(pk=attempt.pk, status__in=_UNOPENED).update(
            status=status.value, message=message
        )
        if changed:
            rederive(payment)
    return payment


def _opened(channel: Provider, attempt: Attempt, action: NextAction) -> Payment:
    with transaction.atomic():
        payment = Payment.objects.select_for_update(no_key=True).get(pk=attempt.payment_id)
        changed = Attempt.objects.filter(pk=attempt.pk, status__in=_UNOPENED).update(
            status=AttemptStatus.PENDING.value,
            next_action_type=action.type.value,
            next_action_url=action.url,
            next_action_params=dict(action.params),
            reference=action.reference,
            payer={},
        )
        if changed:
            rederive(payment)
            return payment
    attempt.refresh_from_db()
    if attempt.status == AttemptStatus.CLOSED:
        # it was closed while our call was on its way, which opened it again: nobody may pay it now
        log.warning("attempt %s was opened after it had been closed; closing it again", attempt.out_trade_no)
        attempt.reference = action.reference
        fold(_close(channel, attempt).facts, source="close")
    return Payment.objects.get(pk=attempt.payment_id)
