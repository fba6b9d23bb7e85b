"""Refunds: reserved on the payment's row if so much is left, so that together they never exceed what was captured.

The row is committed before the provider hears of it; its id is the refund's number there, so asking twice moves
nothing twice, and a notification that arrives before our own call returned finds its row.

`submitted_at` is when the last request began of whose outcome nothing is known. It is the compare-and-set between
processes that make requests, and keeps a refusal of one from being taken for a word about another: what an earlier
request may still move stays reserved, or the same money could be asked for under a second number.
"""

import logging
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from idempotency.ids import new_id
from payments.attempts import asking, services
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable, RefundExceedsPaid
from payments.models import Observation, Payment, Refund
from payments.providers.answers import follow_up, must_match
from payments.providers.base import FactKind, Provider, RefundResult
from payments.providers.base import RefundStatus as AtProvider
from payments.settlement.anomalies import file_anomaly
from payments.settlement.backoff import after
from payments.settlement.decide import reference_of
from payments.settlement.settle import rederive, settle
from payments.settlement.state import BY_HAND, as_id
from payments.states import OPEN_REFUNDS, AnomalyKind, RefundStatus

log = logging.getLogger(__name__)

# what a person must look at, and where our refund stands then: open is reserved and asked for again
_TROUBLES = {
    AtProvider.FAILED: RefundStatus.FAILED,
    AtProvider.UNFUNDED: RefundStatus.REQUESTED,
    AtProvider.STUCK: RefundStatus.PROCESSING,
}

# for so long a request without an answer may still be carried out; longer than a provider takes for one
IN_DOUBT = timedelta(minutes=10)

_OPEN = [status.value for status in OPEN_REFUNDS]


def request_refund(*, payment_id: UUID, amount_minor: int, reason: str, refund_id: UUID | None = None) -> Refund:
    """Reserve a refund of what was captured and is not yet reserved or refunded.

    Args:
        payment_id: of a paid payment.
        amount_minor: above zero, in minor units.
        reason: shown to the shopper, at most 80 characters.
        refund_id: the caller's own number for it; a second call with it gets the first one's refund.

    Raises:
        RefundExceedsPaid: not so much is left.

    Transaction: needs the caller's; the payment's row is locked from the reservation on, so racing refunds go one
    after the other, and the CHECK `payment_refunds_within_paid` judges them.
    """
    if refund_id is not None and (known := Refund.objects.filter(pk=refund_id).first()) is not None:
        return known
    # what has succeeded is in the refunded total, and so is what went back by hand at the provider
    reserved = Payment.objects.filter(
        pk=payment_id, paid_minor__gte=F("refunded_minor") + F("reserved_minor") + amount_minor
    ).update(reserved_minor=F("reserved_minor") + amount_minor, version=F("version") + 1, updated_at=Now())
    if not reserved:
        raise RefundExceedsPaid
    payment = Payment.objects.get(pk=payment_id)
    captured = payment.attempts.get(observations__kind=FactKind.PAID.value, observations__credited=True)
    return Refund.objects.create(
        id=refund_id or new_id(),
        attempt=captured,
        payment=payment,
        amount_minor=amount_minor,
        reason=reason,
        next_query_at=after(query_count=0),
    )


def submit_refund(refund_id: UUID, *, by_shopper: bool = False) -> Refund:
    """Have the provider give the money back, or find out what became of an earlier request.

    Args:
        refund_id: which refund. by_shopper: a caller of ours retries: what became of an earlier request is asked
        within `payments.attempts.asking`
            alone, else the refund is returned as it is known.

    Returns:
        The refund: succeeded, uncertain, processing, requested (our account there has too little), or failed. An
        anomaly is filed where it failed or waits for a person.

    Raises:
        ProviderUnavailable: cannot be reached; the refund stays reserved, the timer tries again.

    Transaction: NONE may be open. May run any number of times.
    """
    services.must_be_outside_transactions()
    # by the database's clock: what is compared here was written by other processes
    refund = Refund.objects.select_related("attempt", "anomaly").annotate(now=Now()).get(pk=refund_id)
    if refund.status not in _OPEN:
        return refund
    channel = services.provider_of(refund.attempt)
    charged, before, began = charge_of(refund), refund.submitted_at, refund.now
    try:
        result: RefundResult | None = RefundResult(status=AtProvider.NOT_FOUND)
        if before is not None:
            ask = partial(_ask, channel, refund, charged)
            with follow_up():  # where the question fails, the refund stays as unknown, and as reserved, as it was
                result = asking.for_shopper(refund.attempt_id, ask) if by_shopper else ask()
        to_make = result is not None and result.status is AtProvider.NOT_FOUND
        ours = to_make and _still_open(refund).filter(submitted_at=before).update(submitted_at=began)
        if result is None or (to_make and not ours):
            # not asked; or withdrawn, ended by another's question, or another's request goes out
            refund.refresh_from_db()
            return refund
        if ours:
            result = _request(channel, refund, charged)
        _must_match(result, refund, charged)
    except OutcomeUnknown as error:
        log.warning("refund %s: outcome unknown: %s", refund.out_refund_no, error)
        return _set(refund, RefundStatus.UNCERTAIN)
    except ProviderUnavailable:
        _still_open(refund).filter(submitted_at=began).update(submitted_at=before)  # ours was none
        raise
    except ProviderRejected as error:
        return _refused(refund, began=began, before=before, message=str(error))
    settle(*result.facts, source="refund")
    if result.status in _TROUBLES:
        why = result.message or "the provider closed it without moving money"
        return _stand(refund, _still_open(refund), status=_TROUBLES[result.status], message=why)
    if result.status is AtProvider.PROCESSING:
        _end_or_go_on(refund, RefundStatus.PROCESSING)
    refund.refresh_from_db()
    return refund


def withdraw_refund(refund_id: UUID, *, message: str) -> Refund:
    """End a refund of which its provider has not been told, so that it never will be; its reservation goes back.

    Returns:
        The refund: failed, with `message`; or as it was, where it has been submitted.

    Transaction: needs the caller's; locks the payment's row. Whoever submits the refund first updates its row, on
    the condition that it is open, so only one of both can.
    """
    refund = Refund.objects.get(pk=refund_id)
    Payment.objects.select_for_update(no_key=True).get(pk=refund.payment_id)
    never_told = _still_open(refund).filter(submitted_at__isnull=True)
    if never_told.update(status=RefundStatus.FAILED.value, message=message):
        rederive(refund.payment_id)
    refund.refresh_from_db()
    return refund


def end_unmoved(refund: Refund, *, message: str) -> Refund:
    """End a refund of which a person knows that no money moved, as one that its provider refused; if it is open.

    Transaction: needs the caller's, and the refund's row locked, so that nobody submits it meanwhile; locks the
    payment's row.
    """
    return _stand(refund, _still_open(refund), status=RefundStatus.FAILED, message=message)


def charge_of(refund: Refund) -> Observation:
    """The charge it takes back: the credited one, or the one that its anomaly is about."""
    charges = Observation.objects.filter(attempt=refund.attempt, kind=FactKind.PAID.value)
    if refund.anomaly is None:
        return charges.get(credited=True)
    about = refund.anomaly.reference
    named = {reference_of(merchant=one.merchant, provider_txn_id=one.provider_txn_id): one for one in charges}
    return named[about]


def _request(channel: Provider, refund: Refund, charged: Observation) -> RefundResult:
    return channel.refund(
        out_trade_no=refund.attempt.out_trade_no,
        out_refund_no=refund.out_refund_no,
        amount_minor=refund.amount_minor,
        paid_minor=charged.amount_minor,
        currency=charged.currency,
        reason=refund.reason,
        notify_url=f"{settings.PUBLIC_URL}/webhooks/{refund.attempt.channel}",
        reference=_number_of(refund, charged),
    )


def _number_of(refund: Refund, charged: Observation) -> str:
    """The provider's own: of the charge, and not of the attempt, whose number may have been charged twice."""
    if charged.source != BY_HAND:
        return charged.provider_txn_id
    told = Observation.objects.filter(attempt=refund.attempt, kind=FactKind.PAID.value, merchant=charged.merchant)
    confirmed = told.exclude(source=BY_HAND).order_by("id").first()  # as of `Position.confirms`
    return refund.attempt.reference if confirmed is None else confirmed.provider_txn_id


def _ask(channel: Provider, refund: Refund, charged: Observation) -> RefundResult:
    """Ask what became of it."""
    return channel.query_refund(
        out_trade_no=refund.attempt.out_trade_no,
        out_refund_no=refund.out_refund_no,
        reference=_number_of(refund, charged),
    )


def _must_match(result: RefundResult, refund: Refund, charged: Observation) -> None:
    """A question names no amount, so its answer is compared here; raises OutcomeUnknown."""
    asked = {"amount_minor": refund.amount_minor, "currency": charged.currency}
    for fact in result.facts:
        told = {"amount_minor": fact.amount_minor, "currency": fact.currency}
        must_match(refund.attempt.channel, asked=asked, told=told)


def _set(refund: Refund, status: RefundStatus) -> Refund:
    _end_or_go_on(refund, status)
    refund.refresh_from_db()
    return refund


def take_news(told: RefundResult, *, channel: str) -> bool:
    """What a notification tells of a refund that does not go its way; whether a person must look.

    "Stuck" counts for an open refund only: the word may be older than its success. "Failed" counts for one that
    had succeeded only: the failure of an open one is found by the timer, which frees what is reserved.

    Transaction: needs the caller's; locks the payment's row.
    """
    number = as_id(told.out_refund_no)
    ours = Refund.objects.select_related("attempt").filter(attempt__channel=channel)
    refund = number and ours.filter(pk=number).first()
    if not refund:
        return False
    Payment.objects.select_for_update(no_key=True).get(pk=refund.payment_id)
    refund.refresh_from_db(fields=["status"])
    stuck = told.status is AtProvider.STUCK and refund.status in _OPEN
    came_back = told.status is AtProvider.FAILED and refund.status == RefundStatus.SUCCEEDED
    if stuck or came_back:
        _file(refund, message=told.message)
    return stuck or came_back


def _refused(refund: Refund, *, began: datetime, before: datetime | None, message: str) -> Refund:
    """Our request was refused: that ends the refund, unless another request may still be carried out.

    Args:
        began: when ours did; where another one began since, that one's outcome counts.
        before: when one began that has had no answer, if one has.
    """
    ours = _still_open(refund).filter(submitted_at=began)
    if before is not None and began - before < IN_DOUBT:
        return _stand(refund, ours, status=RefundStatus.UNCERTAIN, submitted_at=before, message=message)
    return _stand(refund, ours, status=RefundStatus.FAILED, message=message)


def _stand(refund: Refund, row: QuerySet[Refund], *, message: str, **after: object) -> Refund:
    """It has failed, or stays open and waits for a person; nothing, if it is not `row` any more."""
    with transaction.atomic():
        Payment.objects.select_for_update(no_key=True).get(pk=refund.payment_id)
        # whoever folds a success holds the same lock: it stands, or comes after and resolves what is filed here
        if row.update(message=message[:255], **after):
            _file(refund, message=message)
            rederive(refund.payment_id)  # what was reserved for one that failed is free again
    refund.refresh_from_db()
    return refund


def _file(refund: Refund, *, message: str) -> None:
    of_policy = {"currency": refund.currency} if refund.anomaly_id else {}
    file_anomaly(
        AnomalyKind.REFUND_FAILED,
        channel=refund.attempt.channel,
        reference=refund.out_refund_no,
        payment_id=refund.payment_id,
        detail={"amount_minor": refund.amount_minor, **of_policy, "message": message},
    )


def _end_or_go_on(refund: Refund, status: RefundStatus, *, message: str = "") -> bool:
    """Whether it was still open, and has that status now."""
    return bool(_still_open(refund).update(status=status.value, message=message))


def _still_open(refund: Refund) -> QuerySet[Refund]:
    """Its row, unless it is over: for conditional updates."""
    return Refund.objects.filter(pk=refund.pk, status__in=_OPEN)
