"""Open attempts at their providers.

What is about to be done is committed under our own number, then called with no transaction and no row lock. So
wherever the process dies, asking under that number is all that is ever needed.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db.models.functions import Now
from django.utils import timezone
from procrastinate.contrib.django import app

from payments.attempts import asking, calling, closing
from payments.channels.configured import notify_url
from payments.conf import config, orders
from payments.errors import NoRoom, OutcomeUnknown, ProviderError, ProviderRejected
from payments.models import Attempt, Payment
from payments.order_keys import order_of
from payments.providers.actions import NEEDED, NOBODY, NextAction, Payer
from payments.providers.answers import follow_up
from payments.providers.base import Provider, TradeStatus
from payments.settlement.settle import step_attempt
from payments.states import AttemptStatus, attempts_before

log = logging.getLogger(__name__)

_UNOPENED = attempts_before(AttemptStatus.PENDING)


def submit_attempt(attempt_id: UUID, *, payer: Payer = NOBODY, by_shopper: bool = False) -> Payment:
    """Open the attempt at its provider, or go on where an earlier run was cut off.

    Args:
        payer: what the method must know of the shopper, to get a fresh link or code if the open one has expired.
        by_shopper: a shopper retries: an earlier run is asked about within `payments.attempts.asking` alone.

    Returns:
        The payment. An attempt whose outcome is unknown is `uncertain`, and so is its payment.

    Raises:
        ProviderRejected: refused; the attempt has failed.
        ProviderUnavailable: the provider cannot be reached; the attempt stays to be submitted again.

    Transaction: NONE may be open. May run any number of times, also at once: the provider opens one trade a
    number. An attempt that may no longer be paid is closed there instead.
    """
    calling.must_be_outside_transactions()
    # by the database's clock: what is compared in `_open` was written by other processes
    attempt = Attempt.objects.select_related("payment").annotate(now=Now()).get(pk=attempt_id)
    is_over = attempt.status == AttemptStatus.PENDING and attempt.action_is_over
    needed = NEEDED.get(attempt.method)
    if attempt.status in _UNOPENED:
        _open(attempt, began=attempt.now, by_shopper=by_shopper)
    elif is_over and (not needed or getattr(payer, needed)) and calling.may_be_paid(attempt):
        _renew(attempt, payer)
    else:
        return attempt.payment
    return Payment.objects.get(pk=attempt.payment_id)


def _open(attempt: Attempt, *, began: datetime, by_shopper: bool) -> None:
    """Ask about an earlier request, and make one; its refusal says nothing of others."""
    provider = calling.provider_of(attempt)
    unopened = Attempt.objects.filter(pk=attempt.pk, status__in=_UNOPENED)
    had_request = attempt.submitted_at is not None
    is_first = not had_request and unopened.filter(submitted_at__isnull=True).update(submitted_at=began)
    try:
        if had_request and not _is_to_open(provider, attempt, by_shopper=by_shopper):
            return
        if not is_first and not unopened.update(submitted_at=began):
            return
        action = _create(provider, attempt, Payer(**attempt.payer))
    except OutcomeUnknown as error:
        log.warning("attempt %s: outcome unknown: %s", attempt.out_trade_no, error)
        step_attempt(attempt, among=_UNOPENED, status=AttemptStatus.UNCERTAIN, message="")
    except ProviderRejected as error:
        is_refused = is_first and unopened.filter(submitted_at=began).exists()
        status = AttemptStatus.FAILED if is_refused else AttemptStatus.UNCERTAIN
        step_attempt(attempt, among=_UNOPENED, status=status, message=str(error)[:255])
        if is_refused:
            raise
    else:
        _opened(provider, attempt, action, among=_UNOPENED)


def _is_to_open(provider: Provider, attempt: Attempt, *, by_shopper: bool) -> bool:
    """Ask what became of an earlier request; return whether the attempt is to be opened now."""
    ask = partial(closing.ask, provider, attempt)
    with follow_up():
        asked = asking.for_shopper(attempt.pk, ask) if by_shopper else ask()
    if asked is None:
        _await_another(attempt)
        return False
    if asked not in {TradeStatus.PENDING, TradeStatus.APPROVED}:
        attempt.refresh_from_db()
        if attempt.status not in _UNOPENED:
            return False
    if calling.may_be_paid(attempt):
        if asked is TradeStatus.PAID:  # its number is used up there, by another account's money
            raise OutcomeUnknown("it was paid to another account")
        return True
    with follow_up():  # a refused closing leaves it open, or as unknown as it was
        closing.close_attempt(attempt.pk)
    return False


def _renew(attempt: Attempt, payer: Payer) -> None:
    """Get a fresh link or code for the open trade, under the same number."""
    provider = calling.provider_of(attempt)
    try:
        action = _create(provider, attempt, payer)
    except ProviderRejected:  # paid or closed meanwhile: it is asked which
        with follow_up():
            closing.query_attempt(attempt.pk)
    else:
        _opened(provider, attempt, action, among=[AttemptStatus.PENDING.value])


def _create(provider: Provider, attempt: Attempt, payer: Payer) -> NextAction:
    return provider.create(
        out_trade_no=attempt.out_trade_no,
        amount_minor=attempt.amount_minor,
        currency=attempt.currency,
        description=attempt.description,
        notify_url=notify_url(attempt.account),
        return_url=config().address(orders().return_url(order_id=order_of(attempt.payment))),
        expires_at=attempt.expires_at,
        method=attempt.method,
        payer=payer,
    )


def _await_another(attempt: Attempt) -> None:
    """Wait for what another run finds out, unasked; refuse while it is unknown."""
    asking.wait_for_others(attempt.pk, among=[AttemptStatus.CREATED.value])
    attempt.refresh_from_db(fields=["status"])
    if attempt.status == AttemptStatus.CREATED:
        raise NoRoom("it was asked about a moment ago, and it is not known yet whether it is open")


def _opened(provider: Provider, attempt: Attempt, action: NextAction, *, among: Sequence[str]) -> None:
    """Store how the shopper goes on, if the attempt's status is still one of `among`."""
    if step_attempt(
        attempt,
        among=among,
        status=AttemptStatus.PENDING,
        next_action_type=str(action.type),
        next_action_url=action.url,
        next_action_params=dict(action.params),
        next_action_expires_at=timezone.now() + action.lives if action.lives else None,
        reference=action.reference,
        payer={},
    ):
        return
    attempt.refresh_from_db()
    if attempt.status == AttemptStatus.CLOSED:
        # closed while our call, which opened it again, was on its way: nobody may pay it now
        log.warning("attempt %s was opened after it had been closed; closing it again", attempt.out_trade_no)
        attempt.reference = action.reference
        try:
            closing.close(provider, attempt)
        except ProviderError as error:  # it counts as closed, so the timer no longer asks about it
            log.warning("attempt %s could not be closed again: %s", attempt.out_trade_no, error)
            app.configure_task("payments.look_again").defer(attempt_id=attempt.out_trade_no)
