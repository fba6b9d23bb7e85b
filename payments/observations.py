"""Facts from outside, folded into state: the only code that changes what is paid, refunded or closed.

Callback, timer, return page and operator all call `apply_observation`. A fact is kept once (unique constraint on
its identity), totals are derived from the kept facts under the payment's row lock, and the status from the
totals: so any order, any number of copies and any mixture of sources end in the same state. What must not be
credited is kept too, filed as an anomaly, and given back where the policy says so.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Sum
from django.db.models.functions import Now
from django.utils.module_loading import import_string
from procrastinate.contrib.django import app

from payments import inbox, journal, sequence
from payments.models import Anomaly, Attempt, Observation, Payment, Refund
from payments.providers.base import Fact, FactKind
from payments.states import (
    LIVE_ATTEMPTS,
    NEXT,
    OPEN_REFUNDS,
    AttemptStatus,
    PaymentStatus,
    RefundStatus,
    derive_status,
)

Kind = Anomaly.Kind

# kinds whose money we hold and give back by ourselves; the others wait for a person
REFUNDED_BY_POLICY = frozenset({Kind.AMOUNT_MISMATCH, Kind.PAID_AFTER_CLOSE, Kind.PAID_TWICE})

# what somebody does something about, in order; the others only wait for a provider
ACTED_ON = frozenset(PaymentStatus) - {PaymentStatus.PENDING, PaymentStatus.UNCERTAIN}


class Outcome(StrEnum):
    """What a fact did."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    ANOMALY = "anomaly"
    HELD = "held"  # a refund whose payment nobody told us of yet; it counts as soon as somebody does


def apply_observation(fact: Fact, *, source: str) -> Outcome:
    """Fold one fact.

    Args:
        fact: genuine (its bytes were verified) and complete.
        source: who tells: ``notification``, ``query``, ``close``, ``refund``, ``operator``.

    Returns:
        `DUPLICATE` if it was known; `ANOMALY` if it was kept without being credited; `HELD` if it came before
        what it follows from.

    Raises:
        RuntimeError: no transaction is open.

    Transaction: needs the caller's; locks the payment's row, then (through the listener) its order's. No network.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("apply_observation needs a transaction")
    if fact.kind is FactKind.REFUNDED and fact.paid_txn_id and fact.paid_minor is not None:
        apply_observation(_implied_payment(fact), source=source)
    known = _known(fact)
    if known is not None:
        return _told_again(known, fact)
    attempt = _attempt_of(fact)
    if attempt is None:
        file_anomaly(Kind.UNKNOWN_TRADE, fact=fact)
        return Outcome.ANOMALY
    payment = Payment.objects.select_for_update(no_key=True).get(pk=attempt.payment_id)
    known = _known(fact)  # again: a twin may have been faster to the lock
    if known is not None:
        return _told_again(known, fact)
    observation = Observation.objects.create(
        channel=fact.channel,
        merchant=fact.merchant,
        provider_txn_id=fact.provider_txn_id,
        kind=fact.kind.value,
        attempt=attempt,
        amount_minor=fact.amount_minor,
        currency=fact.currency,
        out_refund_no=fact.out_refund_no,
        source=source,
        occurred_at=fact.occurred_at,
    )
    attempt.refresh_from_db(fields=["status"])
    if fact.kind is not FactKind.PAID and fact.merchant != attempt.merchant:
        # another account's word neither closes our trade nor gives our money back
        file_anomaly(Kind.MERCHANT_MISMATCH, fact=fact, payment=payment)
        return Outcome.ANOMALY
    outcome = _FOLDS[fact.kind](payment, attempt, observation, fact)
    counted = _count_refunds(payment)
    late = [other for other in counted if other != observation]
    observation.credited |= len(late) < len(counted)
    journal.book_moved(observation)
    for other in late:
        journal.book_counted(other)
    inbox.release_held(late)
    rederive(payment)
    if fact.kind is FactKind.REFUNDED and outcome is Outcome.APPLIED and not _is_paid(attempt):
        return Outcome.HELD
    return outcome


def rederive(payment: Payment) -> None:
    """Set totals and status to what the kept facts and attempts add up to, and tell the order.

    Args:
        payment: its row locked by the caller in this transaction.
    """
    sums = dict(
        Observation.objects.filter(attempt__payment=payment, credited=True)
        .order_by()
        .values_list("kind")
        .annotate(Sum("amount_minor"))
    )
    paid_minor = sums.get(FactKind.PAID.value, 0)
    refunded_minor = sums.get(FactKind.REFUNDED.value, 0)
    if refunded_minor > paid_minor:
        file_anomaly(
            Kind.REFUND_EXCEEDS_PAID,
            channel="",
            reference=payment.id.hex,
            payment=payment,
            detail={"paid_minor": paid_minor, "refunded_minor": refunded_minor},
        )
        refunded_minor = paid_minor
    statuses = [AttemptStatus(status) for status in payment.attempts.values_list("status", flat=True)]
    status = derive_status(paid_minor=paid_minor, refunded_minor=refunded_minor, attempts=statuses)
    reserved_minor = min(_reserved(payment), paid_minor - refunded_minor)
    before = (payment.status, payment.paid_minor, payment.refunded_minor, payment.reserved_minor)
    if before == (status.value, paid_minor, refunded_minor, reserved_minor):
        return
    if status not in NEXT[PaymentStatus(payment.status)]:
        raise RuntimeError(f"payment {payment.id.hex}: {payment.status} -> {status} is not a step")
    changed = Payment.objects.filter(pk=payment.pk, version=payment.version).update(
        status=status.value,
        paid_minor=paid_minor,
        refunded_minor=refunded_minor,
        reserved_minor=reserved_minor,
        version=payment.version + 1,
        updated_at=Now(),
    )
    if not changed:
        raise RuntimeError(f"payment {payment.id.hex} changed under its lock")
    payment.refresh_from_db()
    if before[:3] != (status.value, paid_minor, refunded_minor) and status in ACTED_ON:
        sequence.stage(payment)
    if status in {PaymentStatus.REFUNDED, PaymentStatus.CLOSED}:
        order_listener()(order_id=payment.order_id, event=status.value)


def file_anomaly(
    kind: Anomaly.Kind,
    *,
    fact: Fact | None = None,
    channel: str = "",
    reference: str = "",
    payment: Payment | None = None,
    detail: dict[str, Any] | None = None,
) -> Anomaly:
    """Keep it for a person to look at; the same one again is the same row. Needs the caller's transaction."""
    if fact is not None:
        channel, reference = fact.channel, f"{fact.merchant}/{fact.provider_txn_id}"
        detail = {
            "out_trade_no": fact.out_trade_no,
            "amount_minor": fact.amount_minor,
            "currency": fact.currency,
            "merchant": fact.merchant,
            **(detail or {}),
        }
    anomaly, _ = Anomaly.objects.get_or_create(
        kind=kind, channel=channel, reference=reference, defaults={"payment": payment, "detail": detail or {}}
    )
    return anomaly


@lru_cache(maxsize=1)
def _import_listener(path: str) -> Callable[..., bool]:
    listener: Callable[..., bool] = import_string(path)
    return listener


def order_listener() -> Callable[..., bool]:
    """The function named by `PAYMENT_ORDER_LISTENER`: ``(order_id, event) -> bool``, called in our transaction."""
    return _import_listener(settings.PAYMENT_ORDER_LISTENER)


def _fold_paid(payment: Payment, attempt: Attempt, observation: Observation, fact: Fact) -> Outcome:
    refused = _why_not_credited(payment, attempt, fact)
    if refused is None:
        observation.credited = True
        observation.save(update_fields=["credited"])
    else:
        anomaly = file_anomaly(
            refused, fact=fact, payment=payment, detail={"expected_minor": attempt.amount_minor}
        )
        if refused in REFUNDED_BY_POLICY and fact.amount_minor:
            _give_back(payment, attempt, anomaly, amount_minor=fact.amount_minor)
    _set_attempt(attempt, AttemptStatus.SUCCEEDED)
    return Outcome.APPLIED if refused is None else Outcome.ANOMALY


def _why_not_credited(payment: Payment, attempt: Attempt, fact: Fact) -> Anomaly.Kind | None:
    if fact.merchant != attempt.merchant:
        return Kind.MERCHANT_MISMATCH
    if (fact.amount_minor, fact.currency) != (attempt.amount_minor, attempt.currency):
        return Kind.AMOUNT_MISMATCH
    if payment.paid_minor:
        return Kind.PAID_TWICE
    if not order_listener()(order_id=payment.order_id, event="paid"):
        return Kind.PAID_AFTER_CLOSE
    return None


def _give_back(payment: Payment, attempt: Attempt, anomaly: Anomaly, *, amount_minor: int) -> None:
    """Refund exactly what was charged, once: the refund's number follows from the anomaly's."""
    refund = Refund.objects.create(
        id=uuid.uuid5(attempt.id, f"policy refund {anomaly.kind} {anomaly.reference}"),
        attempt=attempt,
        payment=payment,
        amount_minor=amount_minor,
        reason=anomaly.kind.replace("_", " "),
        anomaly=anomaly,
        next_query_at=Now(),
    )
    # staged in this very transaction: either the refund is known and queued, or neither
    app.configure_task("payments.submit_refund", lock=payment.id.hex, queueing_lock=refund.id.hex).defer(
        refund_id=refund.id.hex
    )


def _fold_refunded(payment: Payment, attempt: Attempt, observation: Observation, fact: Fact) -> Outcome:
    """Counted by `rederive` as soon as the attempt's own payment is credited, so an early refund just waits."""
    if fact.currency != attempt.currency:
        file_anomaly(Kind.AMOUNT_MISMATCH, fact=fact, payment=payment)
        return Outcome.ANOMALY
    refund_id = _as_id(fact.out_refund_no)
    refund = refund_id and Refund.objects.filter(pk=refund_id, attempt=attempt).first()
    if refund:
        Refund.objects.filter(pk=refund.pk).update(status=RefundStatus.SUCCEEDED.value, next_query_at=None)
        if refund.anomaly_id is not None:
            Anomaly.objects.filter(pk=refund.anomaly_id, resolved_at__isnull=True).update(
                resolved_at=Now(), resolution=f"refunded {refund.amount_minor} under {refund.out_refund_no}"
            )
    return Outcome.APPLIED


def _count_refunds(payment: Payment) -> list[Observation]:
    """Let the refunds of credited attempts count, also those that came early; the ones that did not before."""
    paid_attempts = payment.attempts.filter(observations__kind=FactKind.PAID, observations__credited=True)
    ours = Observation.objects.filter(merchant=F("attempt__merchant"), currency=F("attempt__currency"))
    found = list(
        ours.filter(attempt__in=paid_attempts, kind=FactKind.REFUNDED, credited=False).select_related("attempt")
    )
    for observation in found:
        observation.credited = True
        observation.save(update_fields=["credited"])
    return found


def _reserved(payment: Payment) -> int:
    """The sum of the payer's refunds that are not over; what our policy gives back was never credited."""
    if not payment.paid_minor:
        return 0  # nothing could be reserved of nothing
    open_refunds = payment.refunds.filter(
        anomaly__isnull=True, status__in=[status.value for status in OPEN_REFUNDS]
    )
    return open_refunds.aggregate(total=Sum("amount_minor"))["total"] or 0


def _is_paid(attempt: Attempt) -> bool:
    return attempt.observations.filter(kind=FactKind.PAID).exists()


def _fold_closed(payment: Payment, attempt: Attempt, observation: Observation, fact: Fact) -> Outcome:
    _set_attempt(attempt, AttemptStatus.CLOSED)
    return Outcome.APPLIED


_FOLDS: dict[FactKind, Callable[[Payment, Attempt, Observation, Fact], Outcome]] = {
    FactKind.PAID: _fold_paid,
    FactKind.REFUNDED: _fold_refunded,
    FactKind.CLOSED: _fold_closed,
}


def _set_attempt(attempt: Attempt, status: AttemptStatus) -> None:
    """A live attempt ends; a closed one may turn out to be paid; a paid one stays so."""
    before = {*LIVE_ATTEMPTS, AttemptStatus.FAILED}
    if status is AttemptStatus.SUCCEEDED:
        before.add(AttemptStatus.CLOSED)
    Attempt.objects.filter(pk=attempt.pk, status__in=[known.value for known in before]).update(
        status=status.value, next_query_at=None
    )


def _known(fact: Fact) -> Observation | None:
    return Observation.objects.filter(
        channel=fact.channel, merchant=fact.merchant, provider_txn_id=fact.provider_txn_id, kind=fact.kind.value
    ).first()


def _told_again(known: Observation, fact: Fact) -> Outcome:
    if (known.amount_minor, known.currency, known.attempt_id) == (
        fact.amount_minor,
        fact.currency,
        _as_id(fact.out_trade_no),
    ):
        return Outcome.DUPLICATE
    file_anomaly(Kind.CONTENT_CHANGED, fact=fact, detail={"first_minor": known.amount_minor})
    return Outcome.ANOMALY


def _attempt_of(fact: Fact) -> Attempt | None:
    attempt_id = _as_id(fact.out_trade_no)
    return None if attempt_id is None else Attempt.objects.filter(pk=attempt_id, channel=fact.channel).first()


def _as_id(number: str) -> uuid.UUID | None:
    """Our own 32-character number as the key it stands for; None for anybody else's."""
    try:
        return uuid.UUID(hex=number) if len(number) == 32 else None
    except ValueError:
        return None


def _implied_payment(fact: Fact) -> Fact:
    """A refund takes back a payment, so that payment happened, whether or not anyone told us."""
    return replace(
        fact,
        kind=FactKind.PAID,
        provider_txn_id=fact.paid_txn_id,
        amount_minor=fact.paid_minor or 0,
        occurred_at=None,
        out_refund_no="",
        paid_txn_id="",
        paid_minor=None,
    )
