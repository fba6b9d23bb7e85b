"""Refunds, reserved on the payment's row: never more than was captured.

The row is committed before the provider is called; its id is the refund's number there, so asking twice moves
money once. `submitted_at` is when the last request began whose outcome is unknown: the compare-and-set between
processes that make requests. What an earlier one may still move stays reserved, whatever becomes of another.
"""

import logging
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from idempotency.ids import new_id
from payments.attempts import asking, calling
from payments.channels import configured as channels
from payments.channels.accounts import account_name
from payments.display import money
from payments.errors import (
    OutcomeUnknown,
    ProviderRejected,
    ProviderUnavailable,
    RefundExceedsPaid,
    RefundUnavailable,
)
from payments.models import Attempt, Observation, Payment, Refund
from payments.money import minor
from payments.providers.answers import follow_up, must_match
from payments.providers.base import FactKind, Provider, RefundResult
from payments.providers.base import RefundStatus as AtProvider
from payments.providers.plugin import Capability
from payments.settlement import backoff
from payments.settlement.anomalies import file_anomaly
from payments.settlement.decision import reference_of
from payments.settlement.settle import rederive, settle
from payments.settlement.state import BY_HAND, as_id
from payments.states import FINAL, OPEN_REFUNDS, AnomalyKind, RefundStatus

log = logging.getLogger(__name__)

# what a person must look at, and the status of our refund then: an open one is reserved and asked for again
_TROUBLES = {
    AtProvider.FAILED: RefundStatus.FAILED,
    AtProvider.UNFUNDED: RefundStatus.REQUESTED,
    AtProvider.STUCK: RefundStatus.PROCESSING,
}


def request_refund(
    *, payment_id: UUID, amount_minor: int | None, reason: str, refund_id: UUID | None = None
) -> Refund:
    """Reserve a refund of what was captured and neither reserved, refunded nor disputed away.

    Args:
        amount_minor: above zero, in minor units; None: all that is left.
        reason: shown to the shopper, at most 80 characters.
        refund_id: the caller's own number for it; a second call with it gets the first one's refund.

    Raises:
        RefundExceedsPaid: not so much is left.
        RefundUnavailable: the channel gives nothing back, or no part.
        ValueError: `refund_id` is of another payment's refund, or the amount not above zero.
        TypeError: an amount that is no int.

    Transaction: needs the caller's; locks the payment's row, so racing refunds go one after the other, and the
    CHECK `payment_refunds_within_paid` judges them.
    """
    if amount_minor is not None:
        minor(amount_minor)
    payment = Payment.objects.select_for_update(no_key=True).get(pk=payment_id)
    # under the lock, or a concurrent duplicate would find none
    if refund_id is not None and (known := Refund.objects.filter(pk=refund_id).first()) is not None:
        if known.payment_id != payment_id:
            raise ValueError(f"{known.out_refund_no} is the number of another payment's refund")
        return known
    if amount_minor is None:
        amount_minor = payment.refundable_minor
    if not 0 < amount_minor <= payment.refundable_minor:
        raise exceeds(payment)
    captured = payment.attempts.get(observations__kind=FactKind.PAID.value, observations__credited=True)
    if not channels.can(captured.account, Capability.REFUND):
        raise RefundUnavailable(_("%(account)s gives nothing back.") % {"account": account_name(captured.account)})
    if amount_minor < captured.amount_minor and not channels.can(captured.account, Capability.PARTIAL_REFUND):
        whole = _("%(account)s gives all of a payment back, or nothing.")
        raise RefundUnavailable(whole % {"account": account_name(captured.account)})
    Payment.objects.filter(pk=payment_id).update(
        reserved_minor=F("reserved_minor") + amount_minor, version=F("version") + 1, updated_at=Now()
    )
    return Refund.objects.create(
        id=refund_id or new_id(),
        attempt=captured,
        payment=payment,
        amount_minor=amount_minor,
        reason=reason,
        next_query_at=backoff.after(query_count=0),
    )


def exceeds(payment: Payment | None) -> RefundExceedsPaid:
    """Say how much of a payment can still go back."""
    if payment is None or not payment.refundable_minor:
        return RefundExceedsPaid(_("Nothing is left to refund: no more than what was paid goes back."))
    left = money(payment.refundable_minor, payment.currency)
    return RefundExceedsPaid(_("Only %(left)s can still be refunded: ask for less.") % {"left": left})


def submit_refund(refund_id: UUID, *, by_shopper: bool = False) -> Refund:
    """Have the provider give the money back, or find out what became of an earlier request.

    Args:
        by_shopper: a caller retries: an earlier request is asked about within `payments.attempts.asking` alone.

    Returns:
        The refund: succeeded, uncertain, processing, requested (our account there has too little), or failed.

    Raises:
        ProviderUnavailable: cannot be reached; the refund stays reserved, the timer tries again.

    Transaction: NONE may be open. May run any number of times.
    """
    calling.must_be_outside_transactions()
    # by the database's clock: what is compared here was written by other processes
    refund = Refund.objects.select_related("attempt", "anomaly").annotate(now=Now()).get(pk=refund_id)
    if refund.status not in OPEN_REFUNDS:
        return refund
    before, began = refund.submitted_at, refund.now
    try:
        result = _asked_or_requested(refund, began=began, by_shopper=by_shopper)
    except OutcomeUnknown as error:
        log.warning("refund %s: outcome unknown: %s", refund.out_refund_no, error)
        _still_open(refund).update(status=RefundStatus.UNCERTAIN.value, message="")
    except ProviderUnavailable:
        _still_open(refund).filter(submitted_at=began).update(submitted_at=before)  # ours was none
        raise
    except ProviderRejected as error:
        columns: dict[str, Any] = {"status": RefundStatus.FAILED}
        if before is not None and began - before < backoff.IN_DOUBT:  # that request may still be carried out
            columns = {"status": RefundStatus.UNCERTAIN, "submitted_at": before}
        ours = _still_open(refund).filter(submitted_at=began)  # else another began since, whose outcome counts
        _set_troubled(refund, ours, message=str(error), **columns)
    else:
        if result is not None:
            _conclude(refund, result)
    refund.refresh_from_db()
    return refund


def withdraw_refund(refund_id: UUID, *, message: str) -> Refund:
    """End a refund that was never submitted, for good; return one that was as it is.

    Transaction: needs the caller's; locks the payment's row. Submitting updates the refund's row first, on the
    condition that it is open, so only one of both can.
    """
    refund = Refund.objects.get(pk=refund_id)
    Payment.objects.select_for_update(no_key=True).get(pk=refund.payment_id)
    unsubmitted = _still_open(refund).filter(submitted_at__isnull=True)
    if unsubmitted.update(status=RefundStatus.FAILED.value, message=message):
        rederive(refund.payment_id)
    refund.refresh_from_db()
    return refund


def end_unmoved(refund: Refund, *, message: str) -> None:
    """End an open refund that a person knows to have moved no money, as if refused.

    Transaction: needs the caller's, and the refund's row locked, so that it is not submitted meanwhile; locks the
    payment's row.
    """
    _set_troubled(refund, _still_open(refund), status=RefundStatus.FAILED, message=message)


def charge_of(refund: Refund) -> Observation:
    """Return the charge it takes back: the credited one, or the one that its anomaly is about."""
    charges = refund.attempt.observations.filter(kind=FactKind.PAID.value)
    if refund.anomaly is None:
        return charges.get(credited=True)
    named = {reference_of(one.merchant, one.provider_txn_id): one for one in charges}
    return named[refund.anomaly.reference]


def take_notice(result: RefundResult, *, channel: str, account_key: str = "") -> bool:
    """File what a notification says of a refund in trouble; return whether a person must look.

    "Stuck" counts for an open refund only: it may be older than its success. "Failed" is final in any order.

    Transaction: needs the caller's; locks the payment's row.
    """
    ours = {"attempt__channel": channel, "attempt__account_key": account_key}
    number = as_id(result.out_refund_no)
    refund = number and Refund.objects.select_related("attempt").filter(pk=number, **ours).first()
    if not refund:
        return False
    Payment.objects.select_for_update(no_key=True).get(pk=refund.payment_id)
    refund.refresh_from_db(fields=["status"])
    stuck = result.status is AtProvider.STUCK and refund.status in OPEN_REFUNDS
    failed = result.status is AtProvider.FAILED and refund.status != RefundStatus.FAILED
    if stuck or failed:
        _file(refund, message=result.message, is_final=failed)
    return stuck or failed


def _asked_or_requested(refund: Refund, *, began: datetime, by_shopper: bool) -> RefundResult | None:
    """Ask about an earlier request, or make one if there is none; None if neither is due."""
    provider, charged, before = calling.provider_of(refund.attempt), charge_of(refund), refund.submitted_at

    def ask() -> RefundResult:
        numbers = {"out_trade_no": refund.attempt.out_trade_no, "out_refund_no": refund.out_refund_no}
        return provider.query_refund(**numbers, reference=_number_of(refund.attempt, charged))

    result = None
    if before is not None:
        with follow_up():  # if the question fails, the refund stays as unknown, and as reserved, as it was
            result = asking.for_shopper(refund.attempt_id, ask) if by_shopper else ask()
        if result is None:
            return None
    if result is None or result.status is AtProvider.NOT_FOUND:
        if not _still_open(refund).filter(submitted_at=before).update(submitted_at=began):
            return None  # withdrawn, ended by another's question, or another's request goes out
        result = _request(provider, refund, charged)
    asked = {"amount_minor": refund.amount_minor, "currency": charged.currency}
    for fact in result.facts:  # a question names no amount
        answer = {"amount_minor": fact.amount_minor, "currency": fact.currency}
        must_match(refund.attempt.channel, asked=asked, answer=answer)
    return result


def _conclude(refund: Refund, result: RefundResult) -> None:
    settle(*result.facts, source="refund")
    if result.status in _TROUBLES:
        why = result.message or "the provider closed it without moving money"
        status, is_final = _TROUBLES[result.status], result.status is AtProvider.FAILED
        _set_troubled(refund, _still_open(refund), status=status, message=why, is_final=is_final)
    elif result.status is AtProvider.PROCESSING:
        _still_open(refund).update(status=RefundStatus.PROCESSING.value, message="")


def _request(provider: Provider, refund: Refund, charged: Observation) -> RefundResult:
    if not channels.can(refund.attempt.account, Capability.REFUND):
        raise ProviderRejected("no_refund", f"{refund.attempt.account} gives nothing back")
    return provider.refund(
        out_trade_no=refund.attempt.out_trade_no,
        out_refund_no=refund.out_refund_no,
        amount_minor=refund.amount_minor,
        paid_minor=charged.amount_minor,
        currency=charged.currency,
        reason=refund.reason,
        notify_url=channels.notify_url(refund.attempt.account),
        reference=_number_of(refund.attempt, charged),
    )


def _number_of(attempt: Attempt, charged: Observation) -> str:
    """Return the provider's number of the trade, or of the charge if trades repeat."""
    if attempt.account not in channels.charging_again():
        return attempt.reference
    if charged.source != BY_HAND:
        return charged.provider_txn_id
    charges = attempt.observations.filter(kind=FactKind.PAID.value, merchant=charged.merchant)
    confirmed = charges.exclude(source=BY_HAND).order_by("id").first()  # as of `PaymentState.confirmed_by`
    return attempt.reference if confirmed is None else confirmed.provider_txn_id


def _set_troubled(
    refund: Refund, row: QuerySet[Refund], *, message: str, is_final: bool = False, **columns: object
) -> None:
    """Mark a refund failed or waiting for a person, and file it; nothing if `row` is gone."""
    with transaction.atomic():
        Payment.objects.select_for_update(no_key=True).get(pk=refund.payment_id)
        # settling a success holds the same lock: it stands, or comes after and resolves what is not final here
        if row.update(message=message[:255], **columns):
            _file(refund, message=message, is_final=is_final)
            rederive(refund.payment_id)  # what a failed one had reserved is free again


def _file(refund: Refund, *, message: str, is_final: bool) -> None:
    """File it; an older success, reported after a final failure, does not resolve that."""
    more = ({"currency": refund.currency} if refund.anomaly_id else {}) | (FINAL if is_final else {})
    file_anomaly(
        AnomalyKind.REFUND_FAILED,
        channel=refund.attempt.channel,
        reference=refund.out_refund_no,
        payment_id=refund.payment_id,
        detail={"amount_minor": refund.amount_minor, "message": message, **more},
    )


def _still_open(refund: Refund) -> QuerySet[Refund]:
    """Select its row unless it is over, for conditional updates."""
    return Refund.objects.filter(pk=refund.pk, status__in=OPEN_REFUNDS)
