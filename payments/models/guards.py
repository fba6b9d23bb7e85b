"""Guards that several models of payments share."""

from collections.abc import Collection, Mapping
from typing import Any

from idempotency.postgres.guards import Guard, changed, no_step
from payments.states import AttemptStatus, PaymentStatus, RefundStatus

_UNBALANCED = """NOT EXISTS (SELECT FROM payments_journalline WHERE entry_id = {entry})
    OR EXISTS (SELECT FROM payments_journalline WHERE entry_id = {entry}
        GROUP BY currency HAVING sum(amount_minor) <> 0)"""


def stored(
    name: str, *, on: str = "DELETE", when: str = "", message: str = "what is known about money stays"
) -> Guard:
    """Refuse writes that lose money's history; ON "UPDATE OR DELETE": append-only."""
    return Guard(
        name=name, on=on, when=when, message=message, raises="money_is_append_only", error="restrict_violation"
    )


def begins(name: str, statuses: Collection[PaymentStatus | AttemptStatus | RefundStatus]) -> Guard:
    """Refuse a row that is inserted with another status than one of `statuses`."""
    allowed = ", ".join(f"'{status}'" for status in sorted(statuses))
    return Guard(
        name=name,
        on="INSERT",
        when=f"NEW.status NOT IN ({allowed})",
        message="what moves money does not begin as paid or over",
        raises="begins_at_the_beginning",
    )


def steps(name: str, table: Mapping[Any, Collection[Any]], *, of: str) -> Guard:
    """Refuse a status change that is no step of `table`; `of`: the row, with its article."""
    return Guard(name=name, on="UPDATE", when=no_step(table), message=f"its new status is not a step of {of}")


def fixed(name: str, *columns: str, message: str) -> Guard:
    """Refuse a change of `columns`."""
    return Guard(name=name, on="UPDATE", when=changed(*columns), message=message)


def balanced(name: str, *, entry: str) -> Guard:
    """Refuse at the commit an `entry` without lines, or whose lines don't add up to zero."""
    return Guard(
        name=name,
        on="INSERT",
        when=_UNBALANCED.format(entry=f"NEW.{entry}"),
        message="its journal entry does not add up to zero",
        raises="journal_adds_up_to_zero",
        at_commit=True,
    )
