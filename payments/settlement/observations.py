"""Facts from outside, folded into state: the only code that changes what is paid, refunded or closed.

Callback, timer, return page, daily bill, an operator's question and his own word all end in `apply_observation`. A
fact is kept once (unique constraint on its identity), totals are derived from the kept facts and written under the
payment's row lock, and the status from the totals: so any order, any number of copies and any mixture of sources
end in the same state. What must not be credited is kept too, filed as an anomaly, and given back where the policy
says so.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils.module_loading import import_string
from procrastinate.contrib.django import app

from idempotency.postgres.statements import Statement, send
from payments.channels import configured as channels
from payments.legible import refund_money
from payments.models import Anomaly, Attempt, Observation, Payment, Refund
from payments.providers.base import Fact, FactKind
from payments.settlement import anomalies, inbox, journal, position, recording, sequence
from payments.settlement.known import KnownAttempt, KnownFact, KnownPayment, columns
from payments.settlement.position import Position, as_id
from payments.settlement.schedule import after
from payments.states import NEXT, AttemptStatus, PaymentStatus, RefundStatus

Kind = Anomaly.Kind

# not about money under our number: left to a person, and neither kept as a fact nor booked; ours may still be paid
_NOT_OURS = frozenset({Kind.MERCHANT_MISMATCH, Kind.CONTENT_CHANGED})

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
        source: who tells: ``notification``, ``query``, ``close``, ``refund``, ``bill``, `BY_HAND`.

    Returns:
        `DUPLICATE` if it was known; `ANOMALY` if it was kept without being credited; `HELD` if it came before
        what it follows from.

    Raises:
        RuntimeError: no transaction is open.

    Transaction: needs the caller's; locks the payment's row, then (through the listener) its order's. No network.
    """
    outcome, writes = observe(fact, source=source)
    send(*writes)
    return outcome


def observe(fact: Fact, *, source: str, stands: Position | None = None) -> tuple[Outcome, list[Statement]]:
    """As `apply_observation`, for a caller who sends the last writes together with its own.

    Args:
        stands: what `usual` has found. It is taken for granted that nobody changes it and that the order takes the
            money. Where that is not so, sending raises `UnexpectedRows` or `IntegrityError`, and the caller begins
            again without.

    Returns:
        What the fact did, and what has to be sent in this transaction before anything of its payment is read.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("apply_observation needs a transaction")
    if fact.kind is FactKind.REFUNDED and fact.paid_txn_id and fact.paid_minor is not None:
        apply_observation(_implied_payment(fact), source=source)
    if stands is not None:
        return _fold(stands, fact, source=source)
    stands = position.lock(fact)
    if stands is None:
        anomalies.file_anomaly(Kind.UNKNOWN_TRADE, fact=fact)
        return Outcome.ANOMALY, []
    known = stands.find(fact)
    if known is not None:
        return _told_again(known, fact), []
    if fact.kind is FactKind.REFUNDED:
        return _fold_refund(stands, fact, source=source)
    return _fold(stands, fact, source=source)


def ask_ahead(fact: Fact) -> Statement | None:
    """What finds out, before any transaction, whether folding the fact is the usual case; None if it cannot be."""
    if fact.kind is not FactKind.PAID or not hasattr(order_listener(), "at_once"):
        return None
    return position.untold(fact)


def usual(fact: Fact, rows: list[tuple[Any, ...]]) -> Position | None:
    """Where the payment stands, if by what `ask_ahead` has found the fact is its first, and to be credited."""
    stands = position.as_untold(rows)
    if stands is None or _why_not_credited(stands, stands.attempt_of(fact), fact) is not None:
        return None
    return stands


def rederive(payment: Payment) -> None:
    """Set totals and status to what the kept facts and attempts add up to, and tell the order.

    The version counts up in any case: who reads the payment finds its attempts or refunds changed.

    Args:
        payment: its row locked by the caller in this transaction.
    """
    known = KnownPayment.of(payment)
    send(*_settle(position.read(known), always=True))
    for name in columns(KnownPayment):
        setattr(payment, name, getattr(known, name))


def order_listener() -> Callable[..., bool]:
    """The function named by `PAYMENT_ORDER_LISTENER`: ``(order_id, event) -> bool``, called in our transaction.

    The payment's row, which is locked, and the fact are written after it, so it looks at what it is told alone. It
    may have an attribute `at_once`: ``(order_id) -> Statement``, an UPDATE that takes the money for an order that
    waits for it, returns its row, and changes none of any other order. It is sent before they are, too.
    """
    listener: Callable[..., bool] = import_string(settings.PAYMENT_ORDER_LISTENER)
    return listener


def _fold_refund(stands: Position, fact: Fact, *, source: str) -> tuple[Outcome, list[Statement]]:
    """As `_fold`; once all went back, single refunds and their sum are the same money, whichever is told first."""
    attempt = stands.attempt_of(fact)
    if fact.merchant == attempt.merchant and stands.went_back_whole(attempt):
        known = _known(fact, attempt, credited=False, source=source)
        send(journal.kept(known, occurred_at=fact.occurred_at, booked_minor=0))
        _end_refund(attempt, fact)
        return Outcome.DUPLICATE, []
    if fact.is_whole and fact.merchant == attempt.merchant:
        left_minor = stands.left_minor(attempt, fact)
        if not left_minor:
            return Outcome.DUPLICATE, []
        fact = replace(fact, amount_minor=left_minor)
    return _fold(stands, fact, source=source)


def _fold(stands: Position, fact: Fact, *, source: str) -> tuple[Outcome, list[Statement]]:
    attempt = stands.attempt_of(fact)
    if (told := stands.confirms(attempt, fact)) is not None:
        return _confirm(stands.payment, attempt, told, fact, source=source)
    refused = _why_not_credited(stands, attempt, fact)
    if refused in _NOT_OURS:
        _file(refused, stands, attempt, fact)
        return Outcome.ANOMALY, []
    first, writes = list[Statement](), list[Statement]()
    if refused is None and fact.kind is FactKind.PAID:  # the order is asked last, because it then is paid
        refused, first = _ask_order(stands)
    credited = refused is None and (fact.kind is FactKind.PAID or stands.takes_back_what_counts(attempt, fact))
    known = _known(fact, attempt, credited=credited, source=source)
    stands.facts.append(known)
    writes.append(journal.kept(known, occurred_at=fact.occurred_at, booked_minor=fact.amount_minor))
    if refused is not None:
        send(*writes)  # what is filed about a fact comes after it, also in time
        writes = []
        _file(refused, stands, attempt, fact)
    if fact.kind is FactKind.PAID:
        writes += recording.end_attempt(attempt, AttemptStatus.SUCCEEDED)
        _have_others_closed(stands, attempt)
        writes += _count_early_refunds(stands, attempt)
    elif refused is None and fact.kind is FactKind.CLOSED:
        writes += recording.end_attempt(attempt, AttemptStatus.CLOSED)
    elif refused is None:
        _end_refund(attempt, fact)
    writes = [*first, *_settle(stands, *writes)]
    if refused is not None:
        return Outcome.ANOMALY, writes
    early = fact.kind is FactKind.REFUNDED and not stands.of(attempt, FactKind.PAID)
    return Outcome.HELD if early else Outcome.APPLIED, writes


def _confirm(
    payment: KnownPayment, attempt: KnownAttempt, told: KnownFact, fact: Fact, *, source: str
) -> tuple[Outcome, list[Statement]]:
    """Keep what the provider tells of money that an operator told before: that counts, and is in the books."""
    known = _known(fact, attempt, credited=False, source=source)
    more_minor = fact.amount_minor - (told.amount_minor if told.currency == fact.currency else 0)
    send(journal.kept(known, occurred_at=fact.occurred_at, booked_minor=more_minor))
    if (told.amount_minor, told.currency) == (fact.amount_minor, fact.currency):
        return Outcome.DUPLICATE, []
    detail = {"first_minor": told.amount_minor}
    anomalies.file_anomaly(Kind.CONTENT_CHANGED, fact=fact, payment_id=payment.id, detail=detail)
    return Outcome.ANOMALY, []


def _known(fact: Fact, attempt: KnownAttempt, *, credited: bool, source: str) -> KnownFact:
    return KnownFact(
        id=None,
        channel=fact.channel,
        merchant=fact.merchant,
        provider_txn_id=fact.provider_txn_id,
        kind=fact.kind.value,
        attempt_id=attempt.id,
        amount_minor=fact.amount_minor,
        currency=fact.currency,
        out_refund_no=fact.out_refund_no,
        paid_txn_id=fact.paid_txn_id,
        credited=credited,
        source=source,
    )


def _why_not_credited(stands: Position, attempt: KnownAttempt, fact: Fact) -> Anomaly.Kind | None:
    if fact.merchant != attempt.merchant:
        # another account's word neither pays nor closes our trade, nor gives our money back
        return Kind.MERCHANT_MISMATCH
    if fact.kind is FactKind.PAID:
        if stands.charges(attempt) and not channels.charges_again(fact.channel):
            # a refund goes by our number there: it would take back the one charge that there is
            return Kind.CONTENT_CHANGED
        if (fact.amount_minor, fact.currency) != (attempt.amount_minor, attempt.currency):
            return Kind.AMOUNT_MISMATCH
        return Kind.PAID_TWICE if stands.payment.paid_minor else None
    if fact.kind is FactKind.REFUNDED:
        # what was charged in another currency goes back in that one; before its charge is known, ours is expected
        charged_in = {charge.currency for charge in stands.charges(attempt, paid_txn_id=fact.paid_txn_id)}
        return None if fact.currency in (charged_in or {attempt.currency}) else Kind.AMOUNT_MISMATCH
    return None


def _ask_order(stands: Position) -> tuple[Anomaly.Kind | None, list[Statement]]:
    """Why the order does not take the money; or what makes it take it, where that has not happened here."""
    listener, order_id = order_listener(), stands.payment.order_id
    if not stands.is_locked:
        step = listener.at_once(order_id=order_id)  # type: ignore[attr-defined]
        return None, [recording.lock(stands.payment), Statement(step.sql, step.parameters, rows=1)]
    return None if listener(order_id=order_id, event="paid") else Kind.PAID_AFTER_CLOSE, []


def _file(kind: Anomaly.Kind, stands: Position, attempt: KnownAttempt, fact: Fact) -> None:
    detail = dict[str, Any]()
    if fact.kind is FactKind.PAID:
        detail["expected_minor"] = attempt.amount_minor
    if kind is Kind.CONTENT_CHANGED:
        detail["charged_as"] = stands.charges(attempt)[0].provider_txn_id
    anomaly = anomalies.file_anomaly(kind, fact=fact, payment_id=stands.payment.id, detail=detail)
    if fact.kind is FactKind.PAID and kind in anomalies.REFUNDED_BY_POLICY and fact.amount_minor:
        _give_back(stands.payment, attempt, anomaly, amount_minor=fact.amount_minor)


def _give_back(payment: KnownPayment, attempt: KnownAttempt, anomaly: Anomaly, *, amount_minor: int) -> None:
    """Refund exactly what was charged, once: the refund's number follows from the anomaly's."""
    refund = Refund.objects.create(
        id=uuid.uuid5(attempt.id, f"policy refund {anomaly.kind} {anomaly.reference}"),
        attempt_id=attempt.id,
        payment_id=payment.id,
        amount_minor=amount_minor,
        reason=anomaly.kind.replace("_", " "),
        anomaly=anomaly,
        next_query_at=after(query_count=0),  # the job comes first
    )
    # staged in this very transaction: either the refund is known and queued, or neither
    app.configure_task("payments.submit_refund", lock=payment.id.hex, queueing_lock=refund.id.hex).defer(
        refund_id=refund.id.hex
    )


def _have_others_closed(stands: Position, paid: KnownAttempt) -> None:
    """Have the timer close them at once: a shopper must not find them open and pay again."""
    others = [one.id for one in stands.attempts.values() if one.is_live and one.id != paid.id]
    if others:
        Attempt.objects.filter(pk__in=others).update(next_query_at=Now(), query_count=0)


def _count_early_refunds(stands: Position, attempt: KnownAttempt) -> list[Statement]:
    """What came before its payment counts from now on, if that does."""
    late = stands.uncounted_refunds(attempt)
    if not late:
        return []  # as ever; the ORM would think long before it finds out that there is nothing to do
    for fact in late:
        fact.credited = True
    Observation.objects.filter(pk__in=[fact.id for fact in late]).update(credited=True)
    inbox.release_held(attempt, facts=len(late))
    return [journal.counted(fact) for fact in late]


def _end_refund(attempt: KnownAttempt, fact: Fact) -> None:
    """The refund of ours that the fact is about has succeeded, whatever was said of it before."""
    refund_id = as_id(fact.out_refund_no)
    ours = Refund.objects.select_related("payment", "anomaly").filter(attempt=attempt.id)
    refund = refund_id and ours.filter(pk=refund_id).first()
    if not refund:
        return
    Refund.objects.filter(pk=refund.pk).update(status=RefundStatus.SUCCEEDED.value, next_query_at=None, message="")
    resolution = f"refunded {refund_money(refund)} under {refund.out_refund_no}"
    anomalies.resolve(refund.anomaly_id, resolution=resolution)
    anomalies.resolve_told(
        Kind.REFUND_FAILED, channel=attempt.channel, reference=refund.out_refund_no, resolution=resolution
    )


def _settle(stands: Position, *writes: Statement, always: bool = False) -> list[Statement]:
    """What sets totals and status of the payment, and these writes; whoever acts on them is told."""
    payment = stands.payment
    paid_minor, refunded_minor = stands.total_minor(FactKind.PAID), stands.total_minor(FactKind.REFUNDED)
    if refunded_minor > paid_minor:
        send(*writes)
        writes = ()
        anomalies.file_anomaly(
            Kind.REFUND_EXCEEDS_PAID,
            reference=payment.id.hex,
            payment_id=payment.id,
            detail={"paid_minor": paid_minor, "refunded_minor": refunded_minor},
        )
        refunded_minor = paid_minor
    reserved_minor = min(stands.reserved_minor(), paid_minor - refunded_minor)
    status = stands.status(paid_minor=paid_minor, refunded_minor=refunded_minor)
    told = (payment.status, payment.paid_minor, payment.refunded_minor)
    as_before = (*told, payment.reserved_minor) == (status.value, paid_minor, refunded_minor, reserved_minor)
    if as_before and not always:
        return [*writes]
    if status not in NEXT[PaymentStatus(payment.status)]:
        raise RuntimeError(f"payment {payment.id.hex}: {payment.status} -> {status} is not a step")
    after: dict[str, int | str] = {
        "status": status.value,
        "paid_minor": paid_minor,
        "refunded_minor": refunded_minor,
        "reserved_minor": reserved_minor,
    }
    if stands.is_locked:
        settled = recording.settle(payment, **after)
    else:
        (attempt,) = stands.attempts.values()
        settled = recording.settle_untold(payment, attempt, **after)
    noted = []
    if told != (status.value, paid_minor, refunded_minor) and status in ACTED_ON:
        noted = [sequence.stage(payment)]
    if status in {PaymentStatus.REFUNDED, PaymentStatus.CLOSED}:
        order_listener()(order_id=payment.order_id, event=status.value)
    return [settled, *writes, *noted]


def _told_again(known: KnownFact, fact: Fact) -> Outcome:
    if fact.is_whole or (known.amount_minor, known.currency, known.attempt_id) == (
        fact.amount_minor,
        fact.currency,
        as_id(fact.out_trade_no),
    ):
        return Outcome.DUPLICATE
    anomalies.file_anomaly(Kind.CONTENT_CHANGED, fact=fact, detail={"first_minor": known.amount_minor})
    return Outcome.ANOMALY


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
