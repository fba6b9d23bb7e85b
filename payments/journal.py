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

from payments.models import JournalEntry, JournalLine, Observation
from payments.providers.base import FactKind

ORDERS, HELD = "orders", "held"

Kind = JournalEntry.Kind


def provider_account(*, channel: str, merchant: str) -> str:
    """The name of a merchant account's own account."""
    return f"provider:{channel}:{merchant}"


def book_moved(fact: Observation) -> None:
    """Book that money came in (`PAID`) or went out (`REFUNDED`) by this fact; nothing if it moved none.

    Transaction: needs the caller's, in which the fact is kept.
    """
    if not fact.amount_minor or fact.kind == FactKind.CLOSED or fact.merchant != fact.attempt.merchant:
        return
    ours = provider_account(channel=fact.channel, merchant=fact.merchant)
    _book(fact, Kind.MOVED, debit=ours, credit=ORDERS if fact.credited else HELD)


def book_counted(fact: Observation) -> None:
    """Book that a fact whose money was held counts for its order from now on.

    Transaction: needs the caller's.
    """
    _book(fact, Kind.COUNTED, debit=HELD, credit=ORDERS)


def trial_balance() -> QuerySet[JournalLine, Any]:
    """Rows of ``account, currency, debit_minor``, every account once a currency; they add up to zero."""
    return (
        JournalLine.objects.order_by("account", "currency")
        .values("account", "currency")
        .annotate(debit_minor=Sum("amount_minor"))
    )


def _book(fact: Observation, kind: JournalEntry.Kind, *, debit: str, credit: str) -> None:
    amount_minor = fact.amount_minor if fact.kind == FactKind.PAID else -fact.amount_minor
    entry = JournalEntry.objects.create(observation=fact, kind=kind)
    JournalLine.objects.bulk_create(
        JournalLine(entry=entry, account=account, amount_minor=amount, currency=fact.currency)
        for account, amount in ((debit, amount_minor), (credit, -amount_minor))
    )
