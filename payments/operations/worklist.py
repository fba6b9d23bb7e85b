"""Work that waits for a person, and the accounts' last two days, for the operator's desk.

Each figure is one statement over partial indexes of what is open, or over two days' attempts by their number.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.db import models
from django.db.models import Count, F, Model, Q, QuerySet, Value
from django.db.models.functions import TruncDate
from django.utils import timezone

from idempotency.ids import first_id
from payments.channels import accounts
from payments.conf import config
from payments.models import Anomaly, Attempt, BillComparison, Delivery, Difference, PaymentEvent, Refund
from payments.operations.figures import moved
from payments.states import AttemptStatus

SHOWN = 25
COUNTED_MAX = 1_000  # of each source, more are not counted
STUCK = timedelta(minutes=2)  # an event that waits longer has missed its job and three runs of the timer

Kind = Anomaly.Kind


@dataclass(frozen=True, slots=True)
class Work:
    """Row that needs a person; of an attempt or refund that `is_former` nobody can be asked."""

    source: str  # one of `sources`
    row: Any
    since: datetime


@dataclass(frozen=True, slots=True)
class DayOfAccount:
    """Attempts at one account that were opened on one day (UTC), and their money by now."""

    day: Any
    account: str
    currency: str
    opened: int = 0
    failed: int = 0
    paid: int = 0
    received_minor: int = 0
    refunded_minor: int = 0
    kept_minor: int = 0

    @property
    def conversion(self) -> int:
        """Percentage of the opened attempts that were paid."""
        return 100 * self.paid // max(1, self.opened)


def sources() -> dict[str, tuple[QuerySet[Any], str]]:
    """Rows that need a person, and the column with their age, in the order of the desk."""
    anomalies = Anomaly.objects.filter(resolved_at__isnull=True)
    own = {Kind.REFUND_FAILED: "refused", Kind.NOTIFICATION_FAILED: "notification"}
    events = PaymentEvent.objects.filter(handled_at__isnull=True)
    given_up = Delivery.objects.filter(status=Delivery.Status.FAILED)
    return {
        "anomaly": (anomalies.exclude(kind__in=own), "created_at"),
        "attempt": (unanswered(Attempt.objects.all()), "created_at"),
        "refund": (unanswered(Refund.objects.all()), "created_at"),
        "refused": (anomalies.filter(kind=Kind.REFUND_FAILED), "created_at"),
        "difference": (Difference.objects.filter(resolved_at__isnull=True), "found_at"),
        "event": (events.filter(Q(attempts__gt=0) | Q(created_at__lt=timezone.now() - STUCK)), "created_at"),
        "delivery": (given_up.filter(endpoint__in=[*config().webhooks]), "created_at"),  # not to one that is gone
        "notification": (anomalies.filter(kind=Kind.NOTIFICATION_FAILED), "created_at"),
    }


def unanswered(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Select open attempts or refunds that the provider does not answer about."""
    statuses, attempt = accounts.OPEN[rows.model]
    uncertain = Q(status=AttemptStatus.UNCERTAIN.value)  # as a refund's
    former = models.ExpressionWrapper(accounts.at_former(attempt), models.BooleanField())
    judged: QuerySet[Any] = rows.annotate(is_former=former)
    return judged.filter(uncertain | Q(is_former=True), status__in=statuses)


@cache  # it is asked for each row, and `at_former` builds the accounts again while one has a wrong setting
def model_of(source: str) -> type[Model]:
    return sources()[source][0].model


def oldest(wanted: Collection[str]) -> list[Work]:
    """Read the `SHOWN` oldest rows of these sources, with their payments, in a statement each."""
    found, known = [], sources()
    for source in wanted:
        rows, since = known[source]
        more = ("anomaly", "attempt") if rows.model is Refund else ()
        first = rows.order_by("pk" if rows.model is Anomaly else since).select_related("payment__owner", *more)
        found += [Work(source, row, getattr(row, since)) for row in first[:SHOWN]]
    return sorted(found, key=lambda work: work.since)[:SHOWN]


def counts(wanted: Collection[str]) -> dict[str, int]:
    """Count the rows of these sources, up to `COUNTED_MAX` of each, in one statement."""
    parts, known = [], sources()
    for source in wanted:
        rows = known[source][0]
        some = rows.model.objects.filter(pk__in=rows.order_by().values("pk")[:COUNTED_MAX]).order_by()
        parts.append(some.annotate(source=Value(source)).values_list("source").annotate(count=Count("pk")))
    found = Counter(dict(parts[0].union(*parts[1:], all=True).order_by())) if parts else Counter()
    return {source: found[source] for source in wanted}


def last_two_days() -> list[DayOfAccount]:
    """Sum up the attempts of today and yesterday by account and currency, the newest day first."""
    since = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    rows = Attempt.objects.filter(pk__gte=first_id(since))
    paid = Q(observations__kind="paid", observations__currency=F("currency"))
    refunded = Q(observations__kind="refunded", observations__currency=F("currency"))
    any_kind = Q(observations__currency=F("currency"))  # of what came in, refunds and disputes took some back
    days = rows.annotate(day=TruncDate("created_at", tzinfo=UTC), at=accounts.name_of())
    grouped = days.values_list("day", "at", "currency").order_by()
    summed = grouped.annotate(
        opened=Count("pk", distinct=True),
        failed=Count("pk", distinct=True, filter=Q(status=AttemptStatus.FAILED.value)),
        paid=Count("pk", distinct=True, filter=paid),
        received=moved("observations__", paid),
        refunded=-moved("observations__", refunded),
        kept=moved("observations__", any_kind),
    )
    return [DayOfAccount(*row) for row in summed.order_by("-day", "at", "currency")]


def newest_bills() -> Iterator[tuple[BillComparison, int]]:
    """Yield the newest comparison of each merchant account with its number of open differences."""
    still_open = Count("differences", filter=Q(differences__resolved_at__isnull=True))
    seen = set()
    since = timezone.now().date() - timedelta(days=3)
    for row in BillComparison.objects.filter(day__gte=since).annotate(still_open=still_open).order_by("-day"):
        if (row.channel, row.merchant) not in seen:
            seen.add((row.channel, row.merchant))
            yield row, row.still_open
