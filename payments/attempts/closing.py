"""Ask about attempts, capture what shoppers have approved, and close attempts."""

import logging
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from uuid import UUID

from django.db.models.functions import Now
from django.utils import timezone
from procrastinate.contrib.django import app

from payments.attempts import asking, calling
from payments.channels import configured as channels
from payments.errors import OutcomeUnknown, ProviderError
from payments.models import Attempt, Payment
from payments.order_keys import of_order
from payments.providers.answers import differences
from payments.providers.base import Fact, FactKind, Provider, Trade, TradeStatus, closed_fact
from payments.providers.plugin import Capability
from payments.settlement import backoff
from payments.settlement.settle import settle
from payments.states import LIVE_ATTEMPTS

log = logging.getLogger(__name__)

LOOK_AGAIN = timedelta(seconds=30)  # after an attempt's end: a payment begun before it has ended by then


class CloseResult(StrEnum):
    """Outcome of `close_payment`."""

    NONE = "none"  # there was no payment
    CLOSED = "closed"
    PAID = "paid"
    UNCERTAIN = "uncertain"  # a provider did not answer: try again


def query_attempt(attempt_id: UUID) -> Payment:
    """Ask the provider what became of the attempt, and settle what it says.

    Raises:
        ProviderError: no trustworthy answer; nothing changed.

    Transaction: NONE may be open.
    """
    return _while_live(attempt_id, ask)


def close_attempt(attempt_id: UUID) -> Payment:
    """Close the attempt at its provider, and settle what that says: it may have been paid.

    Raises, and needs no transaction, as `query_attempt`.
    """
    return _while_live(attempt_id, close)


def look_again(attempt_id: UUID) -> None:
    """Ask about an attempt whose time is over, and close it if its link can still be paid.

    Raises, and needs no transaction, as `query_attempt`.
    """
    calling.must_be_outside_transactions()
    attempt = Attempt.objects.get(pk=attempt_id)
    provider = calling.provider_of(attempt)
    if ask(provider, attempt) in {TradeStatus.PENDING, TradeStatus.APPROVED}:
        close(provider, attempt)


def close_payment(*, order_id: object, by_shopper: bool = False) -> CloseResult:
    """Close every live attempt of the order at its provider, and settle what the providers say.

    Args:
        order_id: the order's primary key.
        by_shopper: a shopper repeats it: each attempt is closed within `payments.attempts.asking` alone.

    Transaction: NONE may be open. The caller has made sure that no new attempt is opened meanwhile.
    """
    calling.must_be_outside_transactions()
    payment = Payment.objects.filter(of_order(order_id)).first()
    if payment is None:
        return CloseResult.NONE
    for attempt in payment.attempts.filter(status__in=LIVE_ATTEMPTS):
        closing = partial(close_attempt, attempt.pk)
        try:
            if not by_shopper:
                closing()
            elif asking.for_shopper(attempt.pk, closing) is None:
                asking.wait_for_others(attempt.pk, among=LIVE_ATTEMPTS)
        except ProviderError as error:
            log.warning("attempt %s could not be closed: %s", attempt.out_trade_no, error)
    payment.refresh_from_db()
    if payment.paid_minor:
        return CloseResult.PAID
    open_still = payment.attempts.filter(status__in=LIVE_ATTEMPTS).exists()
    return CloseResult.UNCERTAIN if open_still else CloseResult.CLOSED


def ask(provider: Provider, attempt: Attempt) -> TradeStatus:
    """Query, have the money taken if the shopper has approved that, and settle what there is."""
    trade = _query(provider, attempt)
    if trade.status is TradeStatus.APPROVED:
        trade = _capture(provider, attempt)
    _settle(trade, attempt, source="query")
    return trade.status


def close(provider: Provider, attempt: Attempt) -> None:
    """Close it at the provider, as far as the channel can, and settle what that says."""
    can_close = channels.can(attempt.account, Capability.CLOSE)
    if not (can_close and channels.can(attempt.account, Capability.VOID)):
        trade = _query(provider, attempt)  # and no capture: what is approved has to lapse there
        _settle(trade, attempt, source="query")
        if not can_close or trade.status is TradeStatus.APPROVED:
            return  # it is asked about until it has ended
    trade = provider.close(out_trade_no=attempt.out_trade_no, reference=attempt.reference)
    if trade.status is TradeStatus.PAID and not trade.facts:
        trade = _query(provider, attempt)
    if trade.may_yet_begin and (then := attempt.expires_at + LOOK_AGAIN) > timezone.now():
        # staged before it counts as closed, so that no crash comes between
        app.configure_task("payments.look_again", schedule_at=then).defer(attempt_id=attempt.out_trade_no)
    _settle(trade, attempt, source="close")
    paid_to = {fact.merchant for fact in trade.facts if fact.kind is FactKind.PAID}
    if paid_to and attempt.merchant not in paid_to:
        # its number was paid to another account, so it cannot be paid to ours any more
        settle(ended_unpaid(attempt), source="close")


def ended_unpaid(attempt: Attempt) -> Fact:
    return closed_fact(
        channel=attempt.channel,
        merchant=attempt.merchant,
        out_trade_no=attempt.out_trade_no,
        currency=attempt.currency,
    )


def _while_live(attempt_id: UUID, call: Callable[[Provider, Attempt], object]) -> Payment:
    calling.must_be_outside_transactions()
    attempt = Attempt.objects.get(pk=attempt_id)
    if attempt.is_live:
        call(calling.provider_of(attempt), attempt)
    return Payment.objects.get(pk=attempt.payment_id)


def _query(provider: Provider, attempt: Attempt) -> Trade:
    return provider.query(out_trade_no=attempt.out_trade_no, reference=attempt.reference)


def _capture(provider: Provider, attempt: Attempt) -> Trade:
    """Take the money of an approved trade whose attempt is live and whose order waits for it.

    That it goes out is committed first: until a word about it, or `backoff.IN_DOUBT`, the attempt does not end as
    closed (`_must_not_be_captured`). Of a closing and a capture at once one gives way.

    Transaction: NONE may be open. May run any number of times, also at once: mostly one captures.
    """
    live = Attempt.objects.filter(pk=attempt.pk, status__in=LIVE_ATTEMPTS)
    idle = live.exclude(capture_submitted_at__gt=Now() - backoff.UNDER_WAY)
    fresh = idle.annotate(now=Now()).first()
    if fresh is None or not calling.may_be_paid(attempt) or not idle.update(capture_submitted_at=fresh.now):
        return Trade(status=TradeStatus.APPROVED)  # left open
    ours = live.filter(capture_submitted_at=fresh.now)
    try:
        trade = provider.capture(out_trade_no=attempt.out_trade_no, reference=attempt.reference)
    except OutcomeUnknown:  # it may still be carried out
        raise
    except ProviderError:
        ours.update(capture_submitted_at=fresh.capture_submitted_at)
        raise
    ours.update(capture_submitted_at=fresh.capture_submitted_at)
    return trade


def _settle(trade: Trade, attempt: Attempt, *, source: str) -> None:
    """Settle an answer's facts. Another amount counts as a mismatch, and is held."""
    if trade.status is TradeStatus.CLOSED:
        _must_not_be_captured(attempt)
    asked = {"amount_minor": attempt.amount_minor, "currency": attempt.currency}
    for fact in trade.facts:
        if fact.kind is FactKind.PAID:
            answer = {"amount_minor": fact.amount_minor, "currency": fact.currency}
            differences(attempt.channel, asked=asked, answer=answer)
    settle(*trade.facts, source=source)


def _must_not_be_captured(attempt: Attempt) -> None:
    """Raise `OutcomeUnknown` while a capture may go through: do not close the attempt."""
    if Attempt.objects.filter(pk=attempt.pk, capture_submitted_at__gt=Now() - backoff.IN_DOUBT).exists():
        raise OutcomeUnknown("a capture of it may still be carried out")
