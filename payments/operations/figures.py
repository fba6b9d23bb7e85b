"""Figures of payments: each a statement over an index or over a bounded number of the newest rows.

The trial balance alone adds up the whole journal, when a person asks for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncHour

from idempotency.observability.statistics import ByHour, before_newest, by_hour, first_hour
from payments.models import JournalLine, Notification, Observation
from payments.providers.base import FactKind
from payments.settlement import journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account in one currency; `credit_minor` is not negative, `balance_minor` is debit less credit."""

    account: str
    currency: str
    debit_minor: int
    credit_minor: int

    @property
    def balance_minor(self) -> int:
        return self.debit_minor - self.credit_minor


def notifications_by_hour() -> ByHour:
    """Count notifications of each hour by verdict."""
    recent = Notification.objects.filter(pk__gt=before_newest(Notification), received_at__gte=first_hour())
    rows = recent.annotate(hour=TruncHour("received_at")).order_by().values_list("hour", "verdict")
    return by_hour((hour, verdict, count) for hour, verdict, count in rows.annotate(count=Count("pk")))


def credited_by_hour() -> tuple[ByHour, dict[str, ByHour]]:
    """Count credited payments of each hour, under ``credited``; and sum them, by currency."""
    recent = Observation.objects.filter(
        pk__gt=before_newest(Observation), observed_at__gte=first_hour(), kind=FactKind.PAID.value, credited=True
    )
    rows = recent.annotate(hour=TruncHour("observed_at")).order_by().values_list("hour", "currency")
    counted = list(rows.annotate(count=Count("pk"), total_minor=Sum("amount_minor")).order_by("hour", "currency"))
    counts = by_hour((hour, "credited", count) for hour, _, count, _ in counted)
    sums = {
        currency: by_hour((hour, "credited", total) for hour, of, _, total in counted if of == currency)
        for currency in sorted({currency for _, currency, _, _ in counted})
    }
    return counts, sums


def held() -> list[Account]:
    """Sum the money that we hold for no order, by currency."""
    return _accounts(JournalLine.objects.filter(account=journal.HELD))


def trial_balance() -> list[Account]:
    """Sum every account once a currency, ordered by currency and name."""
    return _accounts(JournalLine.objects.all())


def totals(accounts: Iterable[Account]) -> list[Account]:
    """Sum all accounts by currency; the balances are zero, because every entry's is."""
    found: dict[str, Account] = {}
    for row in accounts:
        before = found.get(row.currency)
        found[row.currency] = replace(
            row,
            account="total",
            debit_minor=row.debit_minor + (before.debit_minor if before else 0),
            credit_minor=row.credit_minor + (before.credit_minor if before else 0),
        )
    return [found[currency] for currency in sorted(found)]


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
