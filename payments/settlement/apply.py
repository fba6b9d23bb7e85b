"""Write decisions: the only code that changes what is paid, refunded or closed.

All of it goes out in one batch, the payment's row first. Its optimistic version, or the unique identity of a fact,
rolls the loser's batch back.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from idempotency.postgres.statements import Statement, UnitOfWork
from payments.conf import orders
from payments.display import REFUNDED_UNDER, money
from payments.order_keys import order_of
from payments.providers.base import Fact
from payments.settlement import anomalies, events, journal, queries, staging
from payments.settlement.decide import decide, facts_of
from payments.settlement.decision import Decision, OrderEvent, Outcome, PolicyRefund
from payments.settlement.state import FactRow, PaymentRow, PaymentState, RefundRow
from payments.states import AnomalyKind, AttemptStatus, attempts_before


def settle_on(
    work: UnitOfWork, state: PaymentState | None, facts: Sequence[Fact], *, source: str, is_locked: bool = False
) -> list[Outcome]:
    """Decide on facts one after the other, ask the order, and add all writes to `work`.

    `state` is as read for these facts, None if their number is not ours; if it `is_locked`, nobody can change it.

    Raises:
        UnexpectedRows, IntegrityError: now or when `work` is sent: the payment has changed since `state` was read.
    """
    decisions, outcomes, current = list[Decision](), list[Outcome](), state
    for reported in facts:
        for fact in facts_of(reported):
            decision = decide(current, fact, source=source)
            if current is not None and OrderEvent.PAID in decision.order_events:
                _lock(work, current, is_locked=is_locked)
                if not _step_order(work, current.payment, OrderEvent.PAID):
                    decision = decide(replace(current, order_accepts_payment=False), fact, source=source)
            decisions.append(decision)
            current = decision.state
        outcomes.append(decisions[-1].outcome)
    record(work, state, decisions, is_locked=is_locked)
    return outcomes


def record(
    work: UnitOfWork, before: PaymentState | None, decisions: Sequence[Decision], *, is_locked: bool = False
) -> None:
    """Inform the order, and add the writes of decisions, the first on `before`, to `work`."""
    after = decisions[-1].state if decisions else before
    if before is not None and after is not None and after.payment.version != before.payment.version:
        ends = [event for decision in decisions for event in decision.order_events if event is not OrderEvent.PAID]
        for event in ends:
            _lock(work, before, is_locked=is_locked)
            work.flush()
            _step_order(work, after.payment, event)
        work.add(_settling(before, after.payment))
    for decision in decisions:
        work.add(*_writes(decision))
    policy_refunds = [filing.refund for decision in decisions for filing in decision.filings if filing.refund]
    if policy_refunds:
        work.flush()
    for refund in policy_refunds:
        queue_refund(refund)


def queue_refund(refund: PolicyRefund) -> None:
    """Queue a policy refund in the transaction that stores it: both or neither."""
    lock, number = refund.payment_id.hex, refund.id.hex
    events.defer("payments.submit_refund", lock=lock, queueing_lock=number, refund_id=number)


def _step_order(work: UnitOfWork, payment: PaymentRow, event: OrderEvent) -> bool:
    return orders().on_payment(order_id=order_of(payment), event=event.value, work=work)


def _lock(work: UnitOfWork, state: PaymentState, *, is_locked: bool) -> None:
    """Lock the payment before its order is.

    Locked, not updated: checkout holds the order and reads the payment; an update here would deadlock with it.
    """
    if not is_locked:
        work.add(Statement(queries.LOCK_BY_ID, [state.payment.id]))


def _settling(before: PaymentState, payment: PaymentRow) -> Statement:
    known = before.payment
    totals = (payment.paid_minor, payment.refunded_minor, payment.reserved_minor, payment.disputed_minor)
    unchanged = (known.id, known.version, len(before.attempts), known.id)
    return Statement(queries.SETTLE, [payment.status, payment.version, *totals, *unchanged], rows=1)


def _writes(decision: Decision) -> Iterator[Statement]:
    for booking in decision.bookings:
        yield journal.stored(booking)
    for fact in decision.now_counted:
        yield journal.counted(fact)
    for filing in decision.filings:
        yield from anomalies.filed(filing)
    for attempt in decision.ended:
        before = attempts_before(AttemptStatus(attempt.status))
        yield Statement(queries.END_ATTEMPT, [attempt.status, attempt.id, before], rows=1)
    for attempt in decision.to_close:
        yield Statement(queries.ASK_SOON, [attempt.id])
    for refund in decision.refunded:
        yield from _refund_ended(refund, moved=decision.bookings[0].fact)
    for payment in decision.events:
        yield events.stage(payment)
        yield from staging.of_status(payment)
    if decision.now_counted:
        yield from _released(decision)


def _refund_ended(refund: RefundRow, *, moved: FactRow) -> Iterable[Statement]:
    """End a refund that has succeeded, and resolve what was filed because it had not."""
    amount = money(moved.amount_minor, moved.currency)
    resolution = REFUNDED_UNDER % {"money": amount, "number": refund.id.hex}
    yield Statement(queries.END_REFUND, [refund.id])
    if refund.anomaly_id is not None:
        yield Statement(queries.RESOLVE, [resolution, refund.anomaly_id])
    named = (AnomalyKind.REFUND_FAILED.value, moved.channel, refund.id.hex)
    yield Statement(queries.RESOLVE_NAMED, [resolution, *named])


def _released(decision: Decision) -> Iterable[Statement]:
    """Release the notifications of facts that were held, and count from now on."""
    for channel, attempt_id in {(fact.channel, fact.attempt_id) for fact in decision.now_counted}:
        yield Statement(queries.RELEASE_HELD, [channel, attempt_id.hex])
