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
booked.
"""

from typing import Any

from django.db.models import QuerySet, Sum

from idempotency.statements import Statement
from payments.models import JournalEntry, JournalLine, Observation
from payments.providers.base import FactKind

ORDERS, HELD = "orders", "held"

Kind = JournalEntry.Kind

# the fact is named by its identity: it may be kept in the same round trip, and has no number here yet. Without it
# there are no lines, and the division fails: the commit may be in this round trip too
_BOOK = f"""
WITH entry AS (
    INSERT INTO {JournalEntry._meta.db_table} (observation_id, kind)
    SELECT id, %s FROM {Observation._meta.db_table}
    WHERE channel = %s AND merchant = %s AND provider_txn_id = %s AND kind = %s
    ORDER BY id DESC LIMIT 1
    RETURNING id
), line AS (
    INSERT INTO {JournalLine._meta.db_table} (entry_id, account, amount_minor, currency)
    SELECT entry.id, side.account, side.amount_minor, %s
    FROM entry CROSS JOIN (VALUES (%s, %s::bigint), (%s, %s::bigint)) AS side (account, amount_minor)
    RETURNING id
)
SELECT 2 / count(*) FROM line
"""  # noqa: S608  the names in it are our own


def provider_account(*, channel: str, merchant: str) -> str:
    """The name of a merchant account's own account."""
    return f"provider:{channel}:{merchant}"


def moved(fact: Observation) -> list[Statement]:
    """Book that money came in (`PAID`) or went out (`REFUNDED`) by this fact; nothing if it moved none.

    To be sent after what keeps the fact, in its transaction.
    """
    if not fact.amount_minor or fact.kind == FactKind.CLOSED or fact.merchant != fact.attempt.merchant:
        return []
    ours = provider_account(channel=fact.channel, merchant=fact.merchant)
    return [_booked(fact, Kind.MOVED, debit=ours, credit=ORDERS if fact.credited else HELD)]


def counted(fact: Observation) -> list[Statement]:
    """Book that a fact whose money was held counts for its order from now on."""
    return [_booked(fact, Kind.COUNTED, debit=HELD, credit=ORDERS)]


def trial_balance() -> QuerySet[JournalLine, Any]:
    """Rows of ``account, currency, debit_minor``, every account once a currency; they add up to zero."""
    return (
        JournalLine.objects.order_by("account", "currency")
        .values("account", "currency")
        .annotate(debit_minor=Sum("amount_minor"))
    )


def _booked(fact: Observation, kind: JournalEntry.Kind, *, debit: str, credit: str) -> Statement:
    amount_minor = fact.amount_minor if fact.kind == FactKind.PAID else -fact.amount_minor
    which = (fact.channel, fact.merchant, fact.provider_txn_id, fact.kind)
    sides = (debit, amount_minor, credit, -amount_minor)
    return Statement(_BOOK, [kind.value, *which, fact.currency, *sides], rows=1, certain=True)
