"""All rules about money: what follows from a fact, given everything known so far.

Pure: no database, no clock, no network. `decide` answers as if the order takes the money, and says in
`Decision.order_events` that it must be asked; where it refuses, `decide` is called again with that.
"""

from dataclasses import replace
from typing import Any

from payments.money import is_above
from payments.providers.base import Fact, FactKind
from payments.settlement import disputes
from payments.settlement.decision import Booking, Decision, Filing, OrderEvent, Outcome, PolicyRefund
from payments.settlement.state import AttemptRow, FactRow, PaymentRow, PaymentState, RefundRow, as_id
from payments.states import (
    APPROVAL_NEEDED,
    ATTEMPT_NEXT,
    EVENT_OF,
    LIVE_ATTEMPTS,
    NEXT,
    REFUNDED_BY_POLICY,
    AnomalyKind,
    AttemptStatus,
    PaymentStatus,
    RefundStatus,
    derive_status,
)

# not about money under our number: left to a person, neither stored nor booked; the trade may still be paid
_NOT_OURS = frozenset({AnomalyKind.MERCHANT_MISMATCH, AnomalyKind.CONTENT_CHANGED})


def decide(state: PaymentState | None, fact: Fact, *, source: str) -> Decision:
    """Say what `fact` changes, given everything known so far.

    Args:
        state: None if the fact's number is not ours.
        fact: genuine (its bytes were verified) and complete.
        source: how we learned it: ``notification``, ``query``, ``close``, ``refund``, ``bill``, `BY_HAND`.
    """
    if state is None:
        return _of_no_payment(fact)
    if (stored := state.find(fact)) is not None:
        return _repeated(state, stored, fact)
    attempt = state.attempt_of(fact)
    if fact.kind is FactKind.REFUNDED and _is_ours(state, attempt, fact):
        # single refunds and their sum are the same money, whichever comes first
        if state.went_back_whole(attempt):
            return _stored_only(state, attempt, fact, source=source)
        if fact.is_whole:
            fact = replace(fact, amount_minor=state.unreported_minor(fact, attempt))
        if fact.is_whole and not fact.amount_minor:
            return Decision(outcome=Outcome.DUPLICATE, state=state)
    if (by_hand := state.confirmed_by(fact, attempt)) is not None:
        return _confirmed(state, attempt, by_hand, fact, source=source)
    return _new(state, attempt, fact, source=source)


def facts_of(fact: Fact) -> tuple[Fact, ...]:
    """List the fact with those it implies: a refund implies its payment."""
    if fact.kind is not FactKind.REFUNDED or not fact.paid_txn_id or fact.paid_minor is None:
        return (fact,)
    implied = replace(
        fact,
        kind=FactKind.PAID,
        provider_txn_id=fact.paid_txn_id,
        amount_minor=fact.paid_minor,
        occurred_at=None,
        out_refund_no="",
        paid_txn_id="",
        paid_minor=None,
    )
    return implied, fact


def refresh(state: PaymentState) -> Decision:
    """Derive totals and status again after a call of our own; the version grows in any case."""
    return _settled(state, Decision(outcome=Outcome.APPLIED, state=state), always=True)


def _of_no_payment(fact: Fact) -> Decision:
    if fact.kind in disputes.KINDS and not fact.out_trade_no:  # of a payment not known yet, or of another system's
        return Decision(outcome=Outcome.HELD, state=None)
    return Decision(outcome=Outcome.ANOMALY, state=None, filings=(Filing.about(AnomalyKind.UNKNOWN_TRADE, fact),))


def _new(state: PaymentState, attempt: AttemptRow, fact: Fact, *, source: str) -> Decision:
    """Decide on a fact that nothing stored speaks of."""
    refusal = _refusal(state, attempt, fact)
    if refusal in _NOT_OURS:
        filing = _refused_filing(refusal, state, attempt, fact)
        return Decision(outcome=Outcome.ANOMALY, state=state, filings=(filing,))
    if fact.kind is FactKind.PAID:
        return _paid(state, attempt, fact, refusal, source=source)
    if fact.kind in disputes.KINDS:
        decision = disputes.folded(state, attempt, fact, source=source)
        return _settled(state, decision) if decision.filings else decision
    if fact.kind is FactKind.CLOSED:
        return _closed(state, attempt, fact, source=source)
    return _refunded(state, attempt, fact, refusal, source=source)


def _paid(
    state: PaymentState, attempt: AttemptRow, fact: Fact, refusal: AnomalyKind | None, *, source: str
) -> Decision:
    if refusal is None and not state.order_accepts_payment:
        refusal = AnomalyKind.PAID_AFTER_CLOSE
    row = FactRow.of(fact, attempt, credited=refusal is None, source=source)
    after = state.with_facts(row)
    late = tuple(replace(one, credited=True) for one in after.uncounted_refunds(attempt))
    after, ended = _ended(after.with_facts(*late), attempt, AttemptStatus.SUCCEEDED)
    decision = Decision(
        outcome=Outcome.APPLIED if refusal is None else Outcome.ANOMALY,
        state=after,
        bookings=(Booking(fact=row, amount_minor=fact.amount_minor),),
        now_counted=late,
        ended=ended,
        to_close=tuple(one for one in state.attempts if one.status in LIVE_ATTEMPTS and one.id != attempt.id),
        filings=() if refusal is None else (_refused_filing(refusal, state, attempt, fact),),
        order_events=(OrderEvent.PAID,) if refusal is None else (),
    )
    return _settled(state, decision)


def _closed(state: PaymentState, attempt: AttemptRow, fact: Fact, *, source: str) -> Decision:
    row = FactRow.of(fact, attempt, credited=False, source=source)
    after, ended = _ended(state.with_facts(row), attempt, AttemptStatus.CLOSED)
    booking = Booking(fact=row, amount_minor=0)
    return _settled(state, Decision(outcome=Outcome.APPLIED, state=after, bookings=(booking,), ended=ended))


def _refunded(
    state: PaymentState, attempt: AttemptRow, fact: Fact, refusal: AnomalyKind | None, *, source: str
) -> Decision:
    credited = refusal is None and state.takes_back_credit(fact, attempt)
    row = FactRow.of(fact, attempt, credited=credited, source=source)
    refunded = _succeeded(state, attempt, fact) if refusal is None else ()
    filings: tuple[Filing, ...] = () if refusal is None else (_refused_filing(refusal, state, attempt, fact),)
    filings += tuple(
        Filing.about(
            AnomalyKind.CONTENT_CHANGED, fact, payment_id=state.payment.id, first_minor=asked.amount_minor
        )
        for asked in refunded
        if asked.amount_minor != fact.amount_minor
    )
    outcome = Outcome.APPLIED if state.of(attempt, FactKind.PAID) else Outcome.HELD
    decision = Decision(
        outcome=Outcome.ANOMALY if filings else outcome,
        state=state.with_facts(row).with_refunds(refunded),
        bookings=(Booking(fact=row, amount_minor=fact.amount_minor),),
        refunded=refunded,
        filings=filings,
    )
    return _settled(state, decision)


def _stored_only(state: PaymentState, attempt: AttemptRow, fact: Fact, *, source: str) -> Decision:
    """Store a single refund within a whole one: booked and counted already."""
    row = FactRow.of(fact, attempt, credited=False, source=source)
    refunded = _succeeded(state, attempt, fact)
    decision = Decision(
        outcome=Outcome.DUPLICATE,
        state=state.with_facts(row).with_refunds(refunded),
        bookings=(Booking(fact=row, amount_minor=0),),
        refunded=refunded,
    )
    return _settled(state, decision)


def _confirmed(state: PaymentState, attempt: AttemptRow, by_hand: FactRow, fact: Fact, *, source: str) -> Decision:
    """Store a provider's fact that an operator recorded before: it is in the books."""
    row = FactRow.of(fact, attempt, credited=False, source=source)
    booked_minor = by_hand.amount_minor if by_hand.currency == fact.currency else 0
    agrees = (by_hand.amount_minor, by_hand.currency) == (fact.amount_minor, fact.currency)
    differs = Filing.about(
        AnomalyKind.CONTENT_CHANGED, fact, payment_id=state.payment.id, first_minor=by_hand.amount_minor
    )
    decision = Decision(
        outcome=Outcome.DUPLICATE if agrees else Outcome.ANOMALY,
        state=state.with_facts(row),
        bookings=(Booking(fact=row, amount_minor=fact.amount_minor - booked_minor),),
        filings=() if agrees else (differs,),
    )
    return _settled(state, decision)


def _repeated(state: PaymentState, stored: FactRow, fact: Fact) -> Decision:
    same = (stored.amount_minor, stored.currency, stored.attempt_id)
    currency = stored.currency if fact.kind is FactKind.CLOSED else fact.currency  # a closing moves no money
    if fact.is_whole or same == (fact.amount_minor, currency, as_id(fact.out_trade_no)):
        return Decision(outcome=Outcome.DUPLICATE, state=state)
    changed = Filing.about(AnomalyKind.CONTENT_CHANGED, fact, first_minor=stored.amount_minor)
    return Decision(outcome=Outcome.ANOMALY, state=state, filings=(changed,))


def _refusal(state: PaymentState, attempt: AttemptRow, fact: Fact) -> AnomalyKind | None:
    """Say why a fact is not credited, as far as the order need not be asked."""
    if not _is_ours(state, attempt, fact):
        # another account's fact neither pays nor closes our trade, nor gives our money back
        return AnomalyKind.MERCHANT_MISMATCH
    if fact.kind is FactKind.PAID:
        if state.charges(attempt) and attempt.account not in state.charging_again:
            # a refund goes by our number there: it would take back the one charge that there is
            return AnomalyKind.CONTENT_CHANGED
        if (fact.amount_minor, fact.currency) != (attempt.amount_minor, attempt.currency):
            return AnomalyKind.AMOUNT_MISMATCH
        return AnomalyKind.PAID_TWICE if state.payment.paid_minor else None
    if fact.kind is FactKind.REFUNDED:
        # what was charged in another currency goes back in that one; before its charge is known, ours is expected
        charged_in = {charge.currency for charge in state.charges(attempt, paid_txn_id=fact.paid_txn_id)}
        return None if fact.currency in (charged_in or {attempt.currency}) else AnomalyKind.AMOUNT_MISMATCH
    return None


def _is_ours(state: PaymentState, attempt: AttemptRow, fact: Fact) -> bool:
    return fact.merchant == attempt.merchant and not state.is_misdirected(attempt)


def _ended(
    state: PaymentState, attempt: AttemptRow, status: AttemptStatus
) -> tuple[PaymentState, tuple[AttemptRow, ...]]:
    """End an attempt if its status allows it: closed may become paid, paid stays."""
    if status not in ATTEMPT_NEXT[AttemptStatus(attempt.status)]:
        return state, ()
    return state.with_attempt(attempt.id, status), (replace(attempt, status=status.value),)


def _succeeded(state: PaymentState, attempt: AttemptRow, fact: Fact) -> tuple[RefundRow, ...]:
    """Return our refund that the fact is about, as succeeded, whatever it was before."""
    number = as_id(fact.out_refund_no)
    return tuple(
        replace(refund, status=RefundStatus.SUCCEEDED.value)
        for refund in state.refunds
        if refund.id == number and refund.attempt_id == attempt.id
    )


def _settled(before: PaymentState, decision: Decision, *, always: bool = False) -> Decision:
    """Complete a decision with what its facts add up to; `always` informs the order again."""
    after, payment = decision.state, before.payment
    assert after is not None  # noqa: S101  for the type checker; only an unknown trade has none
    paid_minor, refunded_minor = after.total_minor(FactKind.PAID), after.total_minor(FactKind.REFUNDED)
    filings = decision.filings
    if refunded_minor > paid_minor:
        filings += (_exceeds(payment, paid_minor, refunded_minor),)
        refunded_minor = paid_minor
    statuses = [one.status for one in after.attempts]
    status = derive_status(paid_minor=paid_minor, refunded_minor=refunded_minor, attempts=statuses)
    if status not in NEXT[PaymentStatus(payment.status)]:
        raise RuntimeError(f"payment {payment.id.hex}: {payment.status} -> {status} is not a step")
    settled = replace(
        payment,
        status=status.value,
        version=payment.version + 1,
        paid_minor=paid_minor,
        refunded_minor=refunded_minor,
        reserved_minor=min(after.reserved_minor(), paid_minor - refunded_minor),
        disputed_minor=after.disputed_minor(),
    )
    known = (payment.status, payment.paid_minor, payment.refunded_minor)
    has_moved = known != (status, paid_minor, refunded_minor)
    informs = (has_moved or always) and status in {PaymentStatus.REFUNDED, PaymentStatus.CLOSED}
    return replace(
        decision,
        state=replace(after, payment=settled, order_accepts_payment=True),
        filings=filings,
        events=(settled,) if has_moved and status in EVENT_OF else (),
        order_events=(*decision.order_events, *([OrderEvent(status.value)] if informs else [])),
    )


def _refused_filing(kind: AnomalyKind, state: PaymentState, attempt: AttemptRow, fact: Fact) -> Filing:
    """File an uncredited fact; policy refunds the charge once, or asks for approval."""
    more: dict[str, Any] = {"expected_minor": attempt.amount_minor} if fact.kind is FactKind.PAID else {}
    if state.is_misdirected(attempt):
        more["account"] = state.account
    if kind is AnomalyKind.CONTENT_CHANGED:
        more["charged_as"] = state.charges(attempt)[0].provider_txn_id
    filing = Filing.about(kind, fact, payment_id=state.payment.id, **more)
    if fact.kind is not FactKind.PAID or kind not in REFUNDED_BY_POLICY or not fact.amount_minor:
        return filing
    if is_above(state.approve_above, fact.amount_minor, fact.currency):
        return replace(filing, detail={**filing.detail, **APPROVAL_NEEDED})
    return replace(filing, refund=PolicyRefund.of(filing))


def _exceeds(payment: PaymentRow, paid_minor: int, refunded_minor: int) -> Filing:
    return Filing(
        kind=AnomalyKind.REFUND_EXCEEDS_PAID,
        channel="",
        reference=payment.id.hex,
        payment_id=payment.id,
        detail={"paid_minor": paid_minor, "refunded_minor": refunded_minor},
    )
