"""Comparison of a bill's lines with our facts: pairs, and facts without a line.

Reads our tables, and the bills of other days; changes nothing. Used by `payments.reconciliation.bills`.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Self

from django.db.models import Q, QuerySet

from payments.errors import ProviderError
from payments.models import BillComparison, Difference, Observation, Refund
from payments.providers.base import BillLine, FactKind, Provider, RefundStatus
from payments.settlement.state import BY_HAND, as_id
from payments.states import OPEN_REFUNDS

log = logging.getLogger(__name__)

Kind = Difference.Kind

# a bank has three working days for a refund; the longest holiday is eight days
SLOW_REFUND_DAYS = 14

Identity = tuple[str, str]
"""Kind of a movement, and the provider's number of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A line of the bill beside our fact of the same identity; one of both may be missing."""

    line: BillLine | None
    fact: Observation | None

    @classmethod
    def of(cls, line: BillLine, known: Mapping[Identity, Observation]) -> Self:
        """Pair a line with its fact, in the same trade: some numbers are unique only there."""
        found = (known.get((line.kind.value, number)) for number in numbers_of(line))
        fact = next((one for one in found if one is not None), None)
        if fact is not None and line.out_trade_no and line.out_trade_no != fact.attempt.out_trade_no:
            fact = None
        return cls(line=line, fact=fact)

    @property
    def identity(self) -> Identity:
        either = self.line or self.fact
        assert either is not None  # noqa: S101  one of both is there
        return FactKind(either.kind).value, either.provider_txn_id

    @property
    def difference(self) -> Difference.Kind | None:
        if self.fact is None:
            return Kind.MISSING_HERE
        if self.line is None:
            return Kind.MISSING_THERE
        same = (self.line.amount_minor, self.line.currency) == (self.fact.amount_minor, self.fact.currency)
        return None if same else Kind.AMOUNT


def numbers_of(line: BillLine) -> tuple[str, ...]:
    """List the numbers of a fact: the provider's, and ours of a manual settlement.

    A refund may have been reported with all others of its trade, under the trade's number (`Fact.is_whole`).
    """
    refunded = (line.out_refund_no,) if line.kind is FactKind.REFUNDED else ()
    return line.provider_txn_id, *refunded, line.out_trade_no


def of_account(provider: Provider) -> QuerySet[Observation]:
    """Select our facts of money that moved at the account."""
    facts = Observation.objects.filter(channel=provider.channel, merchant=provider.merchant)
    return facts.exclude(kind=FactKind.CLOSED.value).select_related("attempt")


def by_identity(provider: Provider, lines: Iterable[BillLine]) -> dict[Identity, Observation]:
    """Read our facts of the lines' numbers, and of what they take back, of whatever day."""
    numbers = {number for line in lines for number in (*numbers_of(line), line.takes_back, line.out_refund_no)}
    facts = of_account(provider).filter(provider_txn_id__in=numbers - {""})
    return {(fact.kind, fact.provider_txn_id): fact for fact in facts}


def paired(provider: Provider, lines: tuple[BillLine, ...]) -> list[Compared]:
    """Pair every line with its fact, and leave out lines that moved no counted money:

    a refund that failed, or is under way and asked about until it ends; and money back from a refund that we
    never counted. A refund under way that the timer does not ask about stays in.
    """
    known = by_identity(provider, lines)
    asked_about = _open_refunds(provider, lines)
    pairs = [(Compared.of(line, known), line) for line in lines]
    return [one for one, line in pairs if one.fact is not None or not _moved_nothing(line, known, asked_about)]


def unlisted(provider: Provider, day: date, lines: tuple[BillLine, ...]) -> list[Compared]:
    """Find the day's facts that have no line."""
    listed = _identities(lines)
    begin, end = (datetime.combine(one, time.min, provider.zone) for one in (day, day + timedelta(days=1)))
    that_day = Q(occurred_at__gte=begin, occurred_at__lt=end) | Q(
        occurred_at__isnull=True, observed_at__gte=begin, observed_at__lt=end
    )
    facts = of_account(provider).filter(that_day, amount_minor__gt=0)
    return [Compared(line=None, fact=fact) for fact in facts if (fact.kind, fact.provider_txn_id) not in listed]


def listed_elsewhere(provider: Provider, day: date, missing: Collection[Compared]) -> set[Identity]:
    """Find facts without a line on `day` that another day's bill lists and agrees with.

    At midnight a fact may be of another day for us than for them. A bill may list a refund on the day it was
    accepted, for us it is of the day on which it succeeded. A manual settlement is of its record's day for us.

    Transaction: NONE may be open.
    """
    days_of = {one.identity: _other_days(provider, day, one) for one in missing}
    found = set[Identity]()
    for other in sorted(set().union(*days_of.values()), reverse=True):
        asked = {identity for identity, days in days_of.items() if other in days} - found
        if asked and (other < day or _is_compared(provider, other)):
            found |= asked & _agreed_on(provider, other)
    return found


def agreed(pairs: Iterable[Compared]) -> set[Identity]:
    """Collect the identities of lines without a difference."""
    return _identities(one.line for one in pairs if one.line is not None and one.difference is None)


def _other_days(provider: Provider, day: date, missing: Compared) -> set[date]:
    fact = missing.fact
    assert fact is not None  # noqa: S101  it is the line that is missing
    back = SLOW_REFUND_DAYS if fact.kind == FactKind.REFUNDED else 1
    days = {day + timedelta(days=1), *(day - timedelta(days=n) for n in range(1, back + 1))}
    if fact.source == BY_HAND:
        first, last = (at.astimezone(provider.zone).date() for at in _when(fact))
        days |= {first + timedelta(days=n) for n in range((last - first).days + 2)}
    return days - {day}


def _when(fact: Observation) -> tuple[datetime, datetime]:
    """Return the span in which the provider can have listed a manual settlement."""
    if fact.kind == FactKind.PAID:
        return fact.attempt.created_at, fact.attempt.expires_at
    refund = Refund.objects.get(pk=fact.out_refund_no)
    return refund.created_at, refund.submitted_at or refund.created_at


def _identities(lines: Iterable[BillLine]) -> set[Identity]:
    """Collect the identities of all facts that the lines may stand for."""
    return {(line.kind.value, number) for line in lines for number in numbers_of(line)}


def _agreed_on(provider: Provider, day: date) -> set[Identity]:
    try:
        lines = provider.bill(day=day)
    except ProviderError as error:
        log.warning("The bill of %s for %s, to look up what another lacks: %s", provider.channel, day, error)
        return set()
    return agreed(paired(provider, lines))


def _is_compared(provider: Provider, day: date) -> bool:
    """Check for a comparison of that day, which then lists nothing of the day before any more."""
    return BillComparison.objects.filter(channel=provider.channel, merchant=provider.merchant, day=day).exists()


def _open_refunds(provider: Provider, lines: Iterable[BillLine]) -> set[str]:
    """Read the numbers of our refunds that the timer asks about until they end."""
    under_way = (line for line in lines if line.refund_status is not RefundStatus.SUCCEEDED)
    ids = [known for line in under_way if (known := as_id(line.out_refund_no)) is not None]
    ours = Refund.objects.filter(pk__in=ids, attempt__channel=provider.channel, status__in=OPEN_REFUNDS)
    return {refund.out_refund_no for refund in ours}


def _moved_nothing(line: BillLine, known: Mapping[Identity, Observation], asked_about: Collection[str]) -> bool:
    if line.takes_back:
        refund = (line.takes_back, line.out_refund_no)  # the latter after a manual settlement
        return not any((FactKind.REFUNDED.value, number) in known for number in refund)
    if line.refund_status is RefundStatus.FAILED:
        return True
    return line.refund_status is not RefundStatus.SUCCEEDED and line.out_refund_no in asked_about
