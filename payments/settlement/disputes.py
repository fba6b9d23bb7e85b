"""What is known of one dispute, folded from statements in any order: the latest one counts. Pure: no Django."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from payments.providers.base import Fact
from payments.providers.disputes import DisputeStatus

Detail = Mapping[str, Any]

_STATED = ("stated_at", "status", "respond_by", "reason", "claimed_minor")


def fold(known: Detail, more: Detail, fact: Fact) -> Detail:
    """Add to the detail of a dispute's anomaly what a fact says, and `more`."""
    detail = {**known, **more, **_said(max(known, _stated(fact), key=_order))}
    # a reversal that no statement is about
    return detail | {"amount_minor": detail.get("claimed_minor", detail["taken_minor"])}


def is_news(known: Detail, detail: Detail) -> bool:
    """Whether it says more than the same again, of later."""
    return detail != {**known, "stated_at": detail.get("stated_at")}


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


def _said(detail: Detail) -> Detail:
    return {name: detail[name] for name in _STATED if name in detail}


def _order(stated: Detail) -> tuple[str | bool, ...]:
    """Order statements by time; of two in one second, the one that says how it ended is the later."""
    at, *others = (str(stated.get(name, "")) for name in _STATED)
    return (at, stated.get("status") != DisputeStatus.OPEN, *others)
