"""The provider's daily bill against our facts, line by line: the last net under callbacks and timer.

Fetched with no transaction open, then compared in one. A line that we do not know and whose number is ours is
taken as the fact that it is, so that money which nobody ever told us of counts after all. What is left is a
difference for a person. Comparing a day again is safe: what agrees by then is resolved, nothing is listed twice.
"""

import csv
import io
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Self

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from payments import channels, services
from payments.errors import ProviderError
from payments.models import BillComparison, Difference, Observation
from payments.observations import Outcome, apply_observation
from payments.position import as_id
from payments.providers.base import BillLine, Fact, FactKind, Provider

log = logging.getLogger(__name__)

Kind = Difference.Kind

DAYS_BACK = 3  # a provider that could not be reached for a weekend is asked again

COLUMNS = (
    "day",
    "channel",
    "merchant",
    "kind",
    "moved",
    "out_trade_no",
    "out_refund_no",
    "provider_txn_id",
    "theirs_minor",
    "ours_minor",
    "currency",
    "payment",
    "found_at",
    "resolved_at",
    "resolution",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A line of the bill beside our fact of the same identity; one of both may be missing."""

    line: BillLine | None
    fact: Observation | None

    @classmethod
    def of(cls, line: BillLine, known: Mapping[tuple[str, str], Observation]) -> Self:
        """A fact of the same number about another trade is not the line's: Alipay's are unique in a trade only."""
        fact = known.get((line.kind.value, line.provider_txn_id))
        if fact is not None and line.out_trade_no and line.out_trade_no != fact.attempt.out_trade_no:
            fact = None
        return cls(line=line, fact=fact)

    @property
    def identity(self) -> tuple[str, str]:
        """What moved, and the provider's number of it."""
        told = self.line or self.fact
        assert told is not None  # noqa: S101  one of both is there
        return FactKind(told.kind).value, told.provider_txn_id

    @property
    def difference(self) -> Difference.Kind | None:
        if self.fact is None:
            return Kind.MISSING_HERE
        if self.line is None:
            return Kind.MISSING_THERE
        same = (self.line.amount_minor, self.line.currency) == (self.fact.amount_minor, self.fact.currency)
        return None if same else Kind.AMOUNT


def compare(*, channel: str, day: date) -> BillComparison:
    """Fetch the bill of `day` and list every line on which it and our facts differ.

    Args:
        channel: a configured one.
        day: in the provider's time zone; over, so that its bill is complete.

    Raises:
        ChannelUnavailable: it is not configured.
        ProviderError: no bill (yet); nothing changed.

    Transaction: NONE may be open.
    """
    services.must_be_outside_transactions()
    provider = services.provider(channel)
    lines = provider.bill(day=day)
    known = _by_identity(provider, lines)
    for line in lines:
        if (line.kind.value, line.provider_txn_id) not in known:
            _take(provider, line)
    before = _day_before(provider, day) if _unlisted(provider, day, lines) else ()
    with transaction.atomic():
        return _record(provider, day, lines, before)


def compare_recent(*, today: date, progress: Callable[[str], None] = log.info) -> int:
    """Compare the last `DAYS_BACK` days of every channel that were not compared yet; how many days that were.

    Args:
        today: in UTC; the days before it are looked at.
        progress: told a line for each day.

    Transaction: NONE may be open.
    """
    done = 0
    for channel, provider in channels.current().items():
        for back in range(DAYS_BACK, 0, -1):
            day = today - timedelta(days=back)
            if BillComparison.objects.filter(channel=channel, merchant=provider.merchant, day=day).exists():
                continue
            try:
                compared = compare(channel=channel, day=day)
            except ProviderError as error:
                log.warning("The bill of %s for %s could not be had: %s", channel, day, error)
                continue
            progress(f"{compared}: {compared.lines} lines, {open_differences(compared).count()} open differences")
            done += 1
    return done


def open_differences(comparison: BillComparison) -> QuerySet[Difference]:
    """Those of a day that nobody has settled."""
    return comparison.differences.filter(resolved_at__isnull=True)


def resolve(difference_id: int, *, resolution: str) -> bool:
    """A person has settled it; whether it was open.

    Transaction: opens its own statement.
    """
    return bool(
        Difference.objects.filter(pk=difference_id, resolved_at__isnull=True).update(
            resolved_at=Now(), resolution=resolution[:160]
        )
    )


def export(differences: Iterable[Difference]) -> Iterator[str]:
    """The differences as lines of CSV, header first. No cell can be taken for a formula by a spreadsheet."""
    yield _csv_line(COLUMNS)
    for one in differences:
        values = {name: getattr(one, name, None) for name in COLUMNS}
        values |= {name: getattr(one.comparison, name) for name in ("day", "channel", "merchant")}
        values["payment"] = one.payment_id.hex if one.payment_id else ""
        yield _csv_line(["" if values[name] is None else values[name] for name in COLUMNS])


def _take(provider: Provider, line: BillLine) -> None:
    """Count what nobody told us of. What is not about a trade of ours, or conflicts, is left to the comparison."""
    fact = Fact(
        kind=line.kind,
        channel=provider.channel,
        merchant=provider.merchant,
        out_trade_no=line.out_trade_no,
        provider_txn_id=line.provider_txn_id,
        amount_minor=line.amount_minor,
        currency=line.currency,
        occurred_at=line.occurred_at,
        out_refund_no=line.out_refund_no,
    )
    if as_id(line.out_trade_no) is None:
        return
    with transaction.atomic():
        if apply_observation(fact, source="bill") is Outcome.APPLIED:
            log.warning("%s %s was learned from the bill only", provider.channel, line.provider_txn_id)


def _day_before(provider: Provider, day: date) -> tuple[BillLine, ...]:
    """At midnight a fact may be of another day for us than for them; empty where that bill cannot be had."""
    try:
        return provider.bill(day=day - timedelta(days=1))
    except ProviderError as error:
        log.warning("The bill before %s of %s could not be had: %s", day, provider.channel, error)
        return ()


def _of_account(provider: Provider) -> QuerySet[Observation]:
    """Our facts of money that moved there."""
    facts = Observation.objects.filter(channel=provider.channel, merchant=provider.merchant)
    return facts.exclude(kind=FactKind.CLOSED.value).select_related("attempt")


def _by_identity(provider: Provider, lines: tuple[BillLine, ...]) -> dict[tuple[str, str], Observation]:
    """Our facts of the lines' numbers, whatever day we think they were of."""
    numbers = [line.provider_txn_id for line in lines]
    facts = _of_account(provider).filter(provider_txn_id__in=numbers)
    return {(fact.kind, fact.provider_txn_id): fact for fact in facts}


def _record(
    provider: Provider, day: date, lines: tuple[BillLine, ...], before: tuple[BillLine, ...]
) -> BillComparison:
    compared = _pair(provider, lines)
    listed_before = {one.identity for one in _pair(provider, before) if one.difference is None}
    absent = [_Compared(line=None, fact=fact) for fact in _unlisted(provider, day, lines)]
    compared += [one for one in absent if one.identity not in listed_before]
    ours = [one.fact for one in compared if one.fact is not None]
    currencies = [line.currency for line in lines] + [fact.currency for fact in ours]
    comparison, _ = BillComparison.objects.update_or_create(
        channel=provider.channel,
        merchant=provider.merchant,
        day=day,
        defaults={
            "lines": len(lines),
            "currency": next(iter(currencies), ""),
            "theirs_minor": sum(_signed(line.kind, line.amount_minor) for line in lines),
            "ours_minor": sum(_signed(FactKind(fact.kind), fact.amount_minor) for fact in ours),
            "compared_at": Now(),
        },
    )
    found = [(kind, one) for one in compared if (kind := one.difference) is not None]
    Difference.objects.bulk_create(
        [_difference(comparison, kind, one) for kind, one in found], ignore_conflicts=True
    )
    agreed = {one.identity for one in compared} - {one.identity for _, one in found}
    for difference in open_differences(comparison):
        if (difference.moved, difference.provider_txn_id) in agreed | listed_before:
            resolve(difference.pk, resolution="it agrees now")
    _resolve_before(comparison, agreed)
    return comparison


def _resolve_before(comparison: BillComparison, agreed: Collection[tuple[str, str]]) -> None:
    """What was missed in the bill of the day before, and stands in this one."""
    missed = Difference.objects.filter(
        comparison__channel=comparison.channel,
        comparison__merchant=comparison.merchant,
        comparison__day=comparison.day - timedelta(days=1),
        kind=Kind.MISSING_THERE.value,
        resolved_at__isnull=True,
    )
    for difference in missed:
        if (difference.moved, difference.provider_txn_id) in agreed:
            resolve(difference.pk, resolution=f"it stands in the bill of {comparison.day}")


def _pair(provider: Provider, lines: tuple[BillLine, ...]) -> list[_Compared]:
    """Every line with its fact, whatever day we think that was of."""
    by_identity = _by_identity(provider, lines)
    return [_Compared.of(line, by_identity) for line in lines]


def _unlisted(provider: Provider, day: date, lines: tuple[BillLine, ...]) -> list[Observation]:
    """The day's facts that have no line."""
    listed = {(line.kind.value, line.provider_txn_id) for line in lines}
    begin = datetime.combine(day, time.min, provider.zone).astimezone(UTC)
    end = begin + timedelta(days=1)
    that_day = Q(occurred_at__gte=begin, occurred_at__lt=end) | Q(
        occurred_at__isnull=True, observed_at__gte=begin, observed_at__lt=end
    )
    facts = _of_account(provider).filter(that_day, amount_minor__gt=0)
    return [fact for fact in facts if (fact.kind, fact.provider_txn_id) not in listed]


def _difference(comparison: BillComparison, kind: Difference.Kind, one: _Compared) -> Difference:
    line, fact = one.line, one.fact
    moved, number = one.identity
    difference = Difference(comparison=comparison, kind=kind, moved=moved, provider_txn_id=number)
    if fact is not None:
        difference.out_trade_no, difference.out_refund_no = fact.attempt.out_trade_no, fact.out_refund_no
        difference.ours_minor, difference.currency = fact.amount_minor, fact.currency
        difference.payment_id = fact.attempt.payment_id
    if line is not None:
        difference.out_trade_no, difference.out_refund_no = line.out_trade_no, line.out_refund_no
        difference.theirs_minor, difference.currency = line.amount_minor, line.currency
    return difference


def _signed(kind: FactKind, amount_minor: int) -> int:
    return amount_minor if kind is FactKind.PAID else -amount_minor


def _csv_line(cells: Iterable[object]) -> str:
    written = io.StringIO()
    safe = [f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell for cell in cells]
    csv.writer(written).writerow(safe)
    return written.getvalue()
