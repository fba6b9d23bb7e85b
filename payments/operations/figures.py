"""Sums of the money journal: one account by its index; the trial balance of all."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet, Sum

from payments.models import JournalEntry, JournalLine
from payments.settlement import journal

TOTAL = "total"  # in the place of an account's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account in one currency; `credit_minor` ≥ 0, `balance_minor` is debit less credit."""

    account: str
    currency: str
    debit_minor: int
    credit_minor: int

    @property
    def balance_minor(self) -> int:
        return self.debit_minor - self.credit_minor


def moved(facts: str = "", *which: Q) -> Sum:
    """Sum receipts less refunds, as booked; `facts` is the lookup that leads to facts.

    Money that another fact has booked, an operator's record say, is none.
    """
    lines = f"{facts}entries__lines"
    there: dict[str, Any] = {f"{facts}entries__kind": JournalEntry.Kind.MOVED}
    there[f"{lines}__account__startswith"] = journal.THERE
    return Sum(f"{lines}__amount_minor", filter=Q(*which, **there), default=0)


def held() -> list[Account]:
    """Sum the money that we hold for no order, by currency."""
    return _accounts(JournalLine.objects.filter(account=journal.HELD))


def trial_balance() -> list[Account]:
    """Sum every account once a currency, ordered by currency and name."""
    return _accounts(JournalLine.objects.all())


def totals(accounts: Iterable[Account]) -> list[Account]:
    """Sum all accounts by currency; the balances are zero, because every entry's is."""
    rows = list(accounts)
    return [
        Account(
            account=TOTAL,
            currency=currency,
            debit_minor=sum(row.debit_minor for row in rows if row.currency == currency),
            credit_minor=sum(row.credit_minor for row in rows if row.currency == currency),
        )
        for currency in sorted({row.currency for row in rows})
    ]


def _accounts(lines: QuerySet[JournalLine]) -> list[Account]:
    rows = lines.order_by("currency", "account").values_list("account", "currency")
    summed = rows.annotate(
        debit=Sum("amount_minor", filter=Q(amount_minor__gt=0), default=0),
        credit=Sum("amount_minor", filter=Q(amount_minor__lt=0), default=0),
    )
    return [
        Account(account=account, currency=currency, debit_minor=int(debit), credit_minor=-int(credit))
        for account, currency, debit, credit in summed
    ]
