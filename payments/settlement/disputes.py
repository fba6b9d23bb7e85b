"""A dispute, folded from statements in any order: the latest counts. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from typing import Any

from payments.providers.base import Fact, FactKind
from payments.providers.disputes import DisputeStatus
from payments.settlement.decision import Booking, Decision, Filing, Outcome
from payments.settlement.state import AttemptRow, FactRow, PaymentState
from payments.states import AnomalyKind

KINDS = frozenset({FactKind.DISPUTED, FactKind.TAKEN, FactKind.RETURNED})
Detail = Mapping[str, Any]

_STATED = ("stated_at", "status", "respond_by", "reason", "claimed_minor")


def folded(state: PaymentState, attempt: AttemptRow, fact: Fact, *, source: str) -> Decision:
    """Book what a dispute moved, without the payment's totals, and file its state."""
    row = FactRow.of(fact, attempt, credited=False, source=source)
    after, bookings = state, tuple[Booking, ...]()
    if fact.dispute is None:
        after, bookings = state.with_facts(row), (Booking(fact=row, amount_minor=fact.amount_minor),)
    filing = Filing.about(AnomalyKind.DISPUTED, fact, payment_id=state.payment.id, charged_as=fact.paid_txn_id)
    at = (filing.channel, filing.reference)
    known = state.disputes.get(at, {})
    moved = {f"{kind.value}_minor": after.minor_of(kind, fact) for kind in (FactKind.TAKEN, FactKind.RETURNED)}
    former = {name: known[name] for name in _STATED if name in known}
    latest = max(former, _stated(fact), key=_order)
    detail = {**known, **filing.detail, **moved, **latest}
    # a reversal that no statement is about has claimed nothing
    detail["amount_minor"] = detail.get("claimed_minor", detail["taken_minor"])
    if detail == known:
        return Decision(outcome=Outcome.DUPLICATE, state=state)
    # else it says the same again, of later
    is_news = detail != {**known, "stated_at": detail.get("stated_at")}
    return Decision(
        outcome=Outcome.ANOMALY if is_news else Outcome.DUPLICATE,
        state=replace(after, disputes={**state.disputes, at: detail}),
        bookings=bookings,
        filings=(replace(filing, detail=detail, is_news=is_news),),
    )


def _stated(fact: Fact) -> Detail:
    if fact.dispute is None or fact.occurred_at is None:
        return {}
    due = fact.dispute.respond_by
    return {
        "status": fact.dispute.status.value,
        "reason": fact.dispute.reason,
        "respond_by": due.astimezone(UTC).isoformat() if due else "",
        "claimed_minor": fact.amount_minor,
        "stated_at": fact.occurred_at.astimezone(UTC).isoformat(),
    }


def _order(stated: Detail) -> tuple[str | bool, ...]:
    """Order statements by time; in one second, the one that ends the dispute is later."""
    at, *others = (str(stated.get(name, "")) for name in _STATED)
    return (at, stated.get("status") != DisputeStatus.OPEN, *others)
