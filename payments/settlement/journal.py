"""The money journal: what moved at the providers, booked twice. The only writer of its tables.

Accounts, each in its currency; a debit is above zero, a credit below:

========================= ==========================================================================
account                   its balance
========================= ==========================================================================
`provider:CHANNEL:MERCHANT` what we have there: everything charged less everything given back
`orders`                  minus what orders were paid with and not given back of it
`held`                    minus what we hold and no order counts: paid twice, too late, in another
                          amount. It goes back to the payer, so in the end this is zero
========================= ==========================================================================

The database keeps it (migration 0003): an entry adds up to zero when its transaction commits, nothing is changed
or deleted, and a fact is booked once. Money that went to another merchant's account never was ours and is not
booked. What an operator told before its provider did is booked as he told it, and then what the provider's amount
differs by.
"""

from datetime import datetime
from typing import Any

from django.db.models import QuerySet, Sum

from idempotency.postgres.statements import Statement
from payments.models import JournalEntry, JournalLine, Observation
from payments.providers.base import FactKind
from payments.settlement import recording
from payments.settlement.known import KnownFact

ORDERS, HELD = "orders", "held"

Kind = JournalEntry.Kind

# without the fact there are no lines, and the division fails: the commit may be in this round trip too
_BOOK = f"""
WITH fact AS ({{fact}}
), entry AS (
    INSERT INTO {JournalEntry._meta.db_table} (observation_id, kind) SELECT id, %s FROM fact RETURNING id
), line AS (
    INSERT INTO {JournalLine._meta.db_table} (entry_id, account, amount_minor, currency)
    SELECT entry.id, side.account, side.sign * fact.amount_minor, fact.currency
    FROM fact CROSS JOIN entry CROSS JOIN (VALUES (%s, 1), (%s, -1)) AS side (account, sign)
    RETURNING id
)
SELECT 2 / count(*) FROM line
"""  # noqa: S608  the names in these are our own
_BOOK_NEW = _BOOK.format(fact=f"{recording.KEEP} RETURNING id, %s::bigint AS amount_minor, currency")
_BOOK_KNOWN = _BOOK.format(
    fact=f"SELECT id, amount_minor, currency FROM {Observation._meta.db_table} WHERE id = %s"  # noqa: S608
)


def provider_account(*, channel: str, merchant: str) -> str:
    """The name of a merchant account's own account."""
    return f"provider:{channel}:{merchant}"


def kept(fact: KnownFact, *, occurred_at: datetime | None, booked_minor: int) -> Statement:
    """Keep a fact; and book, if it moved money, that this came in (`PAID`) or went out (`REFUNDED`).

    Args:
        occurred_at: as of `recording.keep`.
        booked_minor: how much of it is about money in the account that it was promised to, and not booked yet.
    """
    keep = recording.keep(fact, occurred_at=occurred_at)
    if not booked_minor or fact.kind == FactKind.CLOSED:
        return keep
    ours = provider_account(channel=fact.channel, merchant=fact.merchant)
    sides = _sides(fact, there=ours, here=ORDERS if fact.credited else HELD)
    return Statement(_BOOK_NEW, [*keep.parameters, booked_minor, Kind.MOVED.value, *sides], rows=1, certain=True)


def counted(fact: KnownFact) -> Statement:
    """Book that a fact whose money was held counts for its order from now on."""
    parameters = [fact.id, Kind.COUNTED.value, *_sides(fact, there=HELD, here=ORDERS)]
    return Statement(_BOOK_KNOWN, parameters, rows=1, certain=True)


def trial_balance() -> QuerySet[JournalLine, Any]:
    """Rows of ``account, currency, debit_minor``, every account once a currency; they add up to zero."""
    return (
        JournalLine.objects.order_by("account", "currency")
        .values("account", "currency")
        .annotate(debit_minor=Sum("amount_minor"))
    )


def _sides(fact: KnownFact, *, there: str, here: str) -> tuple[str, str]:
    """Which account is debited and which credited: what came in is there now, and what went out is not."""
    return (there, here) if fact.kind == FactKind.PAID else (here, there)
