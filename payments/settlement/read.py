"""Read what is known of a payment, in one statement."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from idempotency.postgres.statements import Statement, send
from payments.channels import configured as channels
from payments.conf import config
from payments.providers.base import Fact
from payments.providers.documents import must_be_storable
from payments.settlement import disputes, queries
from payments.settlement.state import AttemptRow, FactRow, PaymentRow, PaymentState, RefundRow, as_id

_PAYMENT_COLUMNS = 11


def state_for(facts: Sequence[Fact], *, lock: bool = False) -> PaymentState | None:
    """Read the payment that the facts, all about one number, are of; None if that is not ours.

    With `lock` all others wait for its row first; this needs the caller's transaction.
    """
    reading = reading_for(facts)
    if reading is None:
        return None
    locking = [Statement(queries.LOCK_BY_NUMBER, [as_id(facts[0].out_trade_no)])] if lock else []
    return state_of(send(*locking, reading)[-1])


def numbered(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Name the trade of a dispute's facts, which may know it by the provider's number alone."""
    first = next(iter(facts), None)
    if first is None or first.out_trade_no or first.kind not in disputes.KINDS:
        return tuple(facts)
    (found,) = send(Statement(queries.CHARGED, [first.channel, first.merchant, first.paid_txn_id]))
    number = next((attempt.hex for (attempt,) in found), "")
    return tuple(replace(fact, out_trade_no=number) for fact in facts)


def state_by_id(payment_id: uuid.UUID, *, lock: bool = False) -> PaymentState:
    """Read a payment; `lock` as of `state_for`."""
    locking = [Statement(queries.LOCK_BY_ID, [payment_id])] if lock else []
    no_facts, by_id = [[], [], [], 0, ""], [payment_id, None, ""]
    state = state_of(send(*locking, Statement(queries.READ, [*no_facts, *by_id]))[-1])
    if state is None:
        raise LookupError(f"there is no payment {payment_id.hex}")
    return state


def reading_for(facts: Sequence[Fact]) -> Statement | None:
    """Make the statement that reads the facts' payment, for `state_of`; None: not ours.

    Raises OutcomeUnknown: one of them is none that can be stored.
    """
    for fact in facts:
        must_be_storable(fact)
    number = as_id(facts[0].out_trade_no)
    if number is None:
        return None
    identities = [[fact.merchant, fact.provider_txn_id, fact.kind.value] for fact in facts]
    columns = [list(column) for column in zip(*identities, strict=True)]
    channel = facts[0].channel
    by_number = [None, number, channel]
    return Statement(queries.READ, [*columns, len(facts), channel, *by_number])


def state_of(rows: Sequence[tuple[Any, ...]]) -> PaymentState | None:
    """Make the state of what a reading has found."""
    if not rows:
        return None
    attempts, facts, refunds, disputed, same = rows[0][_PAYMENT_COLUMNS:]
    own = _facts(facts or ())
    stored = {fact.identity for fact in own}
    return PaymentState(
        payment=PaymentRow(*rows[0][:_PAYMENT_COLUMNS]),
        attempts=tuple(AttemptRow(uuid.UUID(values[0]), *values[1:]) for values in attempts or ()),
        facts=(*own, *(fact for fact in _facts(same or ()) if fact.identity not in stored)),
        refunds=tuple(
            RefundRow(uuid.UUID(values[0]), uuid.UUID(values[1]), *values[2:]) for values in refunds or ()
        ),
        charging_again=channels.charging_again(),
        approve_above=config().refunds.approve_above,
        disputes={(channel, reference): detail for channel, reference, detail in disputed or ()},
    )


def _facts(found: Iterable[list[Any]]) -> list[FactRow]:
    return [FactRow(*(*values[:4], uuid.UUID(values[4]), *values[5:])) for values in found]
