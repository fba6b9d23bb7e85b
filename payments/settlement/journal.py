"""The money journal: what moved at the providers, booked twice. Its tables' only writer.

Accounts, each in its currency; a debit is above zero, a credit below:

========================= ==========================================================================
account                   its balance
========================= ==========================================================================
`provider:CHANNEL:MERCHANT` what we have there: everything charged less everything given back
`orders`                  minus what orders were paid with and not given back of it
`held`                    minus what we hold and no order counts: paid twice, too late, in another
                          amount. It goes back to the payer, so in the end this is zero
`disputed`                what disputes took from us and did not return: what we lost by them
========================= ==========================================================================

The models' guards hold it: an entry adds up to zero when its transaction commits, nothing is changed
or deleted, and a fact is booked once. Money that went to another merchant's account never was ours and is not
booked. What an operator recorded before its provider reported it is booked as recorded, and then what the
provider's amount differs by.
"""

from idempotency.postgres.statements import Statement
from payments.models import JournalEntry
from payments.providers.base import FactKind
from payments.settlement import disputes, queries
from payments.settlement.decision import Booking
from payments.settlement.state import FactRow

ORDERS, HELD, DISPUTED = "orders", "held", "disputed"
INCOMING = frozenset({FactKind.PAID, FactKind.RETURNED})
THERE = "provider:"

Kind = JournalEntry.Kind


def stored(booking: Booking) -> Statement:
    """Store a fact; and book, if it moved money, that this came in or went out."""
    fact = booking.fact
    values = [
        *(fact.channel, fact.merchant, fact.provider_txn_id, fact.kind, fact.attempt_id),
        *(fact.amount_minor, fact.currency, fact.out_refund_no, fact.paid_txn_id),
        *(fact.credited, fact.source, fact.occurred_at),
    ]
    if not booking.amount_minor or fact.kind == FactKind.CLOSED:
        return Statement(queries.STORE, values, rows=1, certain=True)
    of_order = ORDERS if fact.credited else HELD
    here = DISPUTED if fact.kind in disputes.KINDS else of_order
    sides = _sides(fact, there=f"{THERE}{fact.channel}:{fact.merchant}", here=here)
    values += [booking.amount_minor, Kind.MOVED.value, *sides]
    return Statement(queries.STORE_AND_BOOK, values, rows=1, certain=True)


def counted(fact: FactRow) -> Statement:
    """Count a stored fact whose money was held for its order from now on, and book that."""
    values = [*fact.identity, Kind.COUNTED.value, *_sides(fact, there=HELD, here=ORDERS)]
    return Statement(queries.COUNT_AND_BOOK, values, rows=1, certain=True)


def _sides(fact: FactRow, *, there: str, here: str) -> tuple[str, str]:
    """Name the accounts debited and credited, for money in and for money out."""
    return (there, here) if fact.kind in INCOMING else (here, there)
