"""The provider's daily bill against our facts, line by line.

An unknown line with a number of ours is settled as a fact, so money that was never notified counts after all. The
rest is a difference for a person. Comparing a day again resolves what agrees by then, and lists nothing twice.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from payments.attempts import calling
from payments.channels import configured as channels
from payments.display import AGREES, IN_BILL_OF
from payments.errors import ProviderError, ProviderRejected
from payments.models import BillComparison, Difference, Observation
from payments.providers.base import BillLine, Fact, Provider, RefundStatus
from payments.providers.documents import NUMBER_MAX, is_keepable, must_be_storable
from payments.providers.plugin import Capability
from payments.reconciliation.bill_lines import (
    SLOW_REFUND_DAYS,
    Compared,
    Identity,
    agreed,
    by_identity,
    listed_elsewhere,
    of_account,
    paired,
    unlisted,
)
from payments.settlement import read
from payments.settlement.decision import Outcome
from payments.settlement.journal import INCOMING
from payments.settlement.settle import settle
from payments.settlement.state import as_id

log = logging.getLogger(__name__)

Kind = Difference.Kind

DAYS_BACK = 3  # looked at in any case; days before that, from an account's first fact on
BILLS_KEPT_DAYS = 90  # some providers give no older ones
DAYS_A_RUN = 7
# of a run of the timer, UTC: the first at 10:30 China time, when yesterday's are ready
HOURS, MINUTE = (2, 5, 8), 30

LINE_TEXT_MAX = 4096  # of which a difference shows the beginning

AS_FOUND = ("kind", "out_trade_no", "out_refund_no", "theirs_minor", "ours_minor", "currency", "payment")


def compare(*, account: str, day: date) -> BillComparison:
    """Fetch the bill of `day` and list every line on which it and our facts differ.

    Args:
        day: in the provider's time zone; over, so that its bill is complete.

    Raises:
        ChannelUnavailable: it is not configured.
        ProviderError: no bill (yet), or one of an amount that is none; nothing changed.

    Transaction: NONE may be open.
    """
    calling.must_be_outside_transactions()
    provider = calling.provider(account)
    if not channels.can(account, Capability.BILL):
        raise ProviderRejected("no_bill", f"{account} gives no bills")
    lines = tuple(dict.fromkeys(provider.bill(day=day)))  # a page that moved on has lines of the one before
    for line in lines:
        must_be_storable(line, most=LINE_TEXT_MAX)
    known = by_identity(provider, lines)
    for line in lines:
        if (line.kind.value, line.provider_txn_id) not in known:
            _take(provider, line)
    missing = unlisted(provider, day, lines)
    elsewhere = listed_elsewhere(provider, day, missing)
    absent = [one for one in missing if one.identity not in elsewhere]
    if absent and not lines:
        message = "The bill of %s for %s is empty, but we have facts of it: %d. It is asked for again."
        log.warning(message, account, day, len(absent))
    with transaction.atomic():
        return _record(provider, day, lines, absent=absent, elsewhere=elsewhere)


def billed() -> list[str]:
    """List the configured accounts whose channels give bills."""
    return [account for account in channels.current() if channels.can(account, Capability.BILL)]


def next_comparison(now: datetime) -> datetime:
    """Return the time at which the timer compares bills next (UTC)."""
    now = now.astimezone(UTC)
    times = [now.replace(hour=hour, minute=MINUTE, second=0, microsecond=0) for hour in HOURS]
    return next((at for at in times if at > now), times[0] + timedelta(days=1))


def compare_recent(*, now: datetime) -> int:
    """Compare up to `DAYS_A_RUN` days of each account; return the number of days.

    Raises ExceptionGroup: some days failed for another reason than a missing bill; all were tried.

    Transaction: NONE may be open.
    """
    done, failed = 0, list[Exception]()
    for account in billed():
        provider = calling.provider(account)
        for day in _days_left(provider, now.astimezone(provider.zone).date()):
            try:
                compared = compare(account=account, day=day)
            except ProviderError as error:
                log.warning("The bill of %s for %s could not be had: %s", account, day, error)
            except Exception as error:
                log.exception("The bill of %s for %s could not be compared", account, day)
                failed.append(error)
            else:
                found = open_differences(compared).count()
                log.info("%s %s: %d lines, %d open differences", account, day, compared.lines, found)
                done += 1
    if failed:
        raise ExceptionGroup(f"{len(failed)} bills could not be compared", failed)
    return done


def open_differences(comparison: BillComparison) -> QuerySet[Difference]:
    return comparison.differences.filter(resolved_at__isnull=True)


def resolve(difference_id: int, *, resolution: str) -> None:
    """Resolve a difference, unless it was before."""
    unresolved = Difference.objects.filter(pk=difference_id, resolved_at__isnull=True)
    unresolved.update(resolved_at=Now(), resolution=resolution[:160])


def _take(provider: Provider, line: BillLine) -> None:
    """Settle a line that was never notified, if it is ours and has succeeded."""
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
        paid_txn_id=line.paid_txn_id,
    )
    numbers = (line.provider_txn_id, line.out_refund_no, line.paid_txn_id)
    is_storable = all(is_keepable(number, most=NUMBER_MAX) for number in numbers)
    if line.refund_status is not RefundStatus.SUCCEEDED or not is_storable:
        return
    (fact,) = read.numbered([fact])
    if as_id(fact.out_trade_no) is not None and settle(fact, source="bill") == [Outcome.APPLIED]:
        log.warning("%s %s was learned from the bill only", provider.channel, line.provider_txn_id)


def _days_left(provider: Provider, today: date) -> list[date]:
    """List the newest days that are not done, oldest first: one resolves what the last missed.

    An empty bill is not done while a fact of ours is missing there: it may have been asked for too early. A day
    whose bill can never be had must not block newer ones.
    """
    since = today - timedelta(days=DAYS_BACK)
    first = of_account(provider).order_by("id").first()
    if first is not None:
        since = min(since, (first.occurred_at or first.observed_at).astimezone(provider.zone).date())
    since = max(since, today - timedelta(days=BILLS_KEPT_DAYS))
    compared = BillComparison.objects.filter(channel=provider.channel, merchant=provider.merchant, day__gte=since)
    still_open = Difference.objects.filter(comparison=OuterRef("pk"), resolved_at__isnull=True)
    done = set(compared.exclude(Q(lines=0) & Exists(still_open)).values_list("day", flat=True))
    days = [since + timedelta(days=after) for after in range((today - since).days)]
    return [day for day in days if day not in done][-DAYS_A_RUN:]


def _record(
    provider: Provider,
    day: date,
    lines: tuple[BillLine, ...],
    *,
    absent: list[Compared],
    elsewhere: Collection[Identity],
) -> BillComparison:
    compared = paired(provider, lines)
    theirs = [one.line for one in compared if one.line is not None]
    compared += absent
    # once, though several lines may name it
    ours = {one.fact.pk: one.fact for one in compared if one.fact is not None}.values()
    currencies = [line.currency for line in theirs] + [fact.currency for fact in ours]
    currency = currencies[0] if currencies else ""
    comparison, _ = BillComparison.objects.update_or_create(
        channel=provider.channel,
        merchant=provider.merchant,
        day=day,
        defaults={
            "lines": len(lines),
            "currency": currency,
            "theirs_minor": _sum(theirs, currency),
            "ours_minor": _sum(ours, currency),
            "compared_at": Now(),
        },
    )
    differing = [(kind, one) for one in compared if (kind := one.difference) is not None]
    _list(comparison, [_difference(comparison, kind, one) for kind, one in differing])
    # one line of a number may agree while another does not
    now_listed = agreed(compared) - {one.identity for _, one in differing}
    _resolve(open_differences(comparison), now_listed.union(elsewhere), AGREES)
    _resolve_other_days(comparison, now_listed, elsewhere)
    return comparison


def _resolve_other_days(
    comparison: BillComparison, now_listed: Collection[Identity], elsewhere: Collection[Identity]
) -> None:
    """Resolve what the bill explains of the account's open differences on other days."""
    day = comparison.day
    others = Difference.objects.filter(
        comparison__channel=comparison.channel, comparison__merchant=comparison.merchant, resolved_at__isnull=True
    ).exclude(comparison=comparison)
    missed_before = others.filter(kind=Kind.MISSING_THERE.value, comparison__day=day - timedelta(days=1))
    _resolve(missed_before, now_listed, IN_BILL_OF % {"day": day})
    # a refund under way when its bill was compared, about which the timer did not ask
    while_under_way = (day - timedelta(days=SLOW_REFUND_DAYS), day)
    early = others.filter(kind=Kind.MISSING_HERE.value, comparison__day__range=while_under_way)
    _resolve(early, elsewhere, AGREES)


def _list(comparison: BillComparison, differences: list[Difference]) -> None:
    """Store this bill's differences; a resolved one stays so, unless `AGREES` resolved it."""
    resolved = comparison.differences.filter(resolved_at__isnull=False).exclude(resolution=AGREES)
    stay = set(resolved.values_list("moved", "provider_txn_id"))
    found = {(one.moved, one.provider_txn_id): one for one in reversed(differences)}
    Difference.objects.bulk_create(
        [one for number, one in found.items() if number not in stay],
        update_conflicts=True,
        unique_fields=["comparison", "moved", "provider_txn_id"],
        update_fields=[*AS_FOUND, "resolution", "resolved_at"],
    )


def _resolve(differences: QuerySet[Difference], settled: Collection[Identity], resolution: str) -> None:
    for difference in differences:
        if (difference.moved, difference.provider_txn_id) in settled:
            resolve(difference.pk, resolution=resolution)


def _difference(comparison: BillComparison, kind: Difference.Kind, one: Compared) -> Difference:
    """Build the row, with the provider's texts cut to what our columns hold."""
    line, fact = one.line, one.fact
    moved, number = one.identity
    difference = Difference(comparison=comparison, kind=kind, moved=moved, provider_txn_id=number[:NUMBER_MAX])
    if fact is not None:
        difference.out_trade_no, difference.out_refund_no = fact.attempt.out_trade_no, fact.out_refund_no
        difference.ours_minor, difference.currency = fact.amount_minor, fact.currency
        difference.payment_id = fact.attempt.payment_id
    if line is not None:
        difference.out_trade_no = line.out_trade_no[:NUMBER_MAX]
        difference.out_refund_no = line.out_refund_no[:NUMBER_MAX]
        difference.theirs_minor, difference.currency = line.amount_minor, line.currency
    return difference


def _sum(moved: Iterable[BillLine | Observation], currency: str) -> int:
    """Sum receipts less refunds; of several currencies in one of them."""
    ours = [one for one in moved if one.currency == currency]
    return sum(one.amount_minor if one.kind in INCOMING else -one.amount_minor for one in ours)
