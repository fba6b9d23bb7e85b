"""The daily bill against our facts: what agrees, is learned, or is for a person."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.test import Client

from payments.channels import configured as channels
from payments.errors import ProviderError, ProviderUnavailable
from payments.models import Anomaly, Attempt, AuditEntry, BillComparison, Difference, Observation, Refund
from payments.providers.base import BillLine, FactKind, RefundResult, RefundStatus
from payments.providers.stripe.bill import bill_line
from payments.reconciliation import bills, spreadsheet
from payments.refunds import steps as refunds
from payments.settlement.state import BY_HAND
from payments.tasks import compare_bills
from tests.integration.payments.conftest import (
    OpenAttempt,
    fold,
    order_of,
    paid,
    payment_of,
    refund_asked,
    refunded,
)
from tests.integration.shop.provider import ScriptedProvider

DAY = date(2026, 11, 20)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NEXT_NOON = NOON + timedelta(days=1)


@dataclass
class Bank(ScriptedProvider):
    zone: tzinfo = UTC
    lines: tuple[BillLine, ...] = ()
    before: tuple[BillLine, ...] = ()
    others: dict[date, tuple[BillLine, ...] | Exception] = field(default_factory=dict)
    failure_of_bill: Exception | None = None

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        assert not connection.in_atomic_block
        if self.failure_of_bill:
            raise self.failure_of_bill
        given = {DAY: self.lines, DAY - timedelta(days=1): self.before, **self.others}.get(day, ())
        if isinstance(given, Exception):
            raise given
        return given


@pytest.fixture
def bank(open_attempt: OpenAttempt) -> Iterator[Bank]:
    bank = Bank("wechat", merchant=channels.current()["wechat"].merchant)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels, "current", lambda: {"wechat": bank})
        yield bank


def line(attempt: Attempt, **changed: Any) -> BillLine:
    """The bill's line about what `paid` reports."""
    fact = paid(attempt)
    given: dict[str, Any] = {
        "kind": FactKind.PAID,
        "out_trade_no": fact.out_trade_no,
        "provider_txn_id": fact.provider_txn_id,
        "out_refund_no": "",
        "amount_minor": fact.amount_minor,
        "currency": "CNY",
        "occurred_at": NOON,
    }
    return BillLine(**{**given, **changed})


def known(attempt: Attempt, days_ago: int = 0) -> Attempt:
    fold(paid(attempt, occurred_at=NOON - timedelta(days=days_ago)), source="query")
    return attempt


def refund_line(attempt: Attempt, amount_minor: int, number: str) -> BillLine:
    given = refunded(attempt, amount_minor, number)
    return line(
        attempt,
        kind=FactKind.REFUNDED,
        provider_txn_id=given.provider_txn_id,
        out_refund_no=number,
        amount_minor=amount_minor,
    )


def listed() -> list[tuple[str, str, int | None, int | None]]:
    still_open = Difference.objects.filter(resolved_at__isnull=True).order_by("id")
    return [(one.kind, one.moved, one.theirs_minor, one.ours_minor) for one in still_open]


def open_ones() -> list[tuple[str, str]]:
    return [(kind, moved) for kind, moved, *_ in listed()]


def test_a_line_that_is_listed_twice_counts_once_and_each_currency_by_itself(
    open_attempt: OpenAttempt, bank: Bank
) -> None:
    attempt = known(open_attempt())
    in_yen = line(attempt, out_trade_no="elsewhere", provider_txn_id="4200-yen", currency="JPY", amount_minor=500)
    bank.lines = (line(attempt), in_yen, line(attempt))
    compared = bills.compare(account="wechat", day=DAY)
    assert (compared.lines, compared.currency, compared.theirs_minor, compared.ours_minor) == (
        2,
        "CNY",
        1990,
        1990,
    )
    assert open_ones() == [("missing_here", "paid")]


@pytest.mark.parametrize("kind", ["amount", "missing_here"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_number_listed_again_with_other_content_is_a_difference(
    open_attempt: OpenAttempt, bank: Bank, kind: str, order: int
) -> None:
    attempt, other = known(open_attempt()), known(open_attempt())
    changed = {"amount": {"amount_minor": 5}, "missing_here": {"out_trade_no": other.out_trade_no}}[kind]
    bank.lines = (line(attempt), line(other), line(attempt, **changed))[::order]
    for _ in range(2):
        compared = bills.compare(account="wechat", day=DAY)
        assert open_ones() == [(kind, "paid")]
    assert compared.ours_minor == 3980


def test_what_disputes_moved_is_learned_from_the_bill_and_agrees(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt = known(open_attempt())
    of = {"out_trade_no": "", "provider_txn_id": "du_1", "paid_txn_id": paid(attempt).provider_txn_id}
    taken, returned = (line(attempt, kind=kind, **of) for kind in (FactKind.TAKEN, FactKind.RETURNED))
    theirs = line(attempt, kind=FactKind.TAKEN, **{**of, "provider_txn_id": "du_2", "paid_txn_id": "pi_theirs"})
    for lines, minor in (((line(attempt), taken), 0), ((line(attempt), taken, returned), 1990)):
        bank.lines = lines
        compared = bills.compare(account="wechat", day=DAY)
        assert (compared.theirs_minor, compared.ours_minor, open_ones()) == (minor, minor, [])
    filed = Anomaly.objects.get()
    assert (filed.kind, filed.payment_id, filed.detail["returned_minor"]) == ("disputed", attempt.payment_id, 1990)
    assert payment_of(attempt).status == "succeeded"
    bank.lines = (*bank.lines, theirs)
    bills.compare(account="wechat", day=DAY)
    assert open_ones() == [("missing_here", "taken")]


def test_each_kind_of_difference_is_listed_once(open_attempt: OpenAttempt, bank: Bank) -> None:
    missing_there, other_amount = known(open_attempt()), known(open_attempt())
    bank.lines = (
        line(other_amount, amount_minor=1000),
        line(other_amount, out_trade_no="somebody-else-s", provider_txn_id="4200-unknown"),
    )
    for _ in range(2):
        compared = bills.compare(account="wechat", day=DAY)
        assert {kind: (moved, *money) for kind, moved, *money in listed()} == {
            "amount": ("paid", 1000, 1990),
            "missing_here": ("paid", 1990, None),
            "missing_there": ("paid", None, 1990),
        }
    assert (compared.theirs_minor, compared.ours_minor) == (2990, 3980)
    assert (BillComparison.objects.count(), Difference.objects.count()) == (1, 3)
    there = Difference.objects.get(kind="missing_there")
    assert (there.payment, there.out_trade_no) == (payment_of(missing_there), missing_there.out_trade_no)


def test_what_agrees_later_is_resolved_and_what_was_settled_stays(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt = known(open_attempt())
    bank.lines = (line(attempt, provider_txn_id="4200-other", out_trade_no="elsewhere"),)
    bills.compare(account="wechat", day=DAY)
    here = Difference.objects.get(kind="missing_here")
    for resolution in ("the other shop's", "once more"):
        bills.resolve(here.pk, resolution=resolution)
    bank.lines = (*bank.lines, line(attempt))
    bills.compare(account="wechat", day=DAY)
    assert listed() == []
    resolutions = set(Difference.objects.values_list("resolution", flat=True))
    assert resolutions == {"the other shop's", "it agrees now"}


def test_what_differs_again_is_open_again_with_the_newest_amount(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt = known(open_attempt())
    for minor, difference in ((1000, 1000), (1500, 1500), (1990, None), (1000, 1000)):
        bank.lines = (line(attempt, amount_minor=minor),)
        bills.compare(account="wechat", day=DAY)
        assert listed() == ([("amount", "paid", difference, 1990)] if difference else [])
    Difference.objects.update(resolved_at=NOON, resolution="the bank's mistake")
    bills.compare(account="wechat", day=DAY)
    assert (listed(), Difference.objects.get().resolution) == ([], "the bank's mistake")


def test_a_used_request_number_of_another_trade_is_a_difference(open_attempt: OpenAttempt, bank: Bank) -> None:
    """By hand in Alipay's pages a refund may get any number, unique in its trade only."""
    one, other = open_attempt(), open_attempt()
    fold(paid(one), paid(other), source="query")
    bank.before = (refund_line(one, 500, "1"),)
    bills.compare(account="wechat", day=DAY - timedelta(days=1))
    assert payment_of(one).refunded_minor == 500
    bank.lines = (refund_line(other, 500, "1"),)
    compared = bills.compare(account="wechat", day=DAY)
    assert open_ones() == [("missing_here", "refunded")]
    assert Difference.objects.get(moved="refunded").out_trade_no == other.out_trade_no
    assert (compared.theirs_minor, compared.ours_minor) == (-500, 0)


def test_a_fact_in_the_bill_of_the_day_before_is_not_missing(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt, missing = known(open_attempt()), known(open_attempt())
    bills.compare(account="wechat", day=DAY)
    assert [kind for kind, *_ in listed()] == ["missing_there", "missing_there"]
    bank.before = (line(attempt),)
    bills.compare(account="wechat", day=DAY)
    assert Difference.objects.get(resolved_at__isnull=True).out_trade_no == missing.out_trade_no


@pytest.mark.parametrize(("days_ago", "resolved"), [((1, 0), [f"it is in the bill of {DAY}"]), ((0, 1), [])])
def test_a_fact_in_the_next_bill_is_resolved_by_it_or_not_missing(
    open_attempt: OpenAttempt, bank: Bank, days_ago: tuple[int, int], resolved: list[str]
) -> None:
    """The other way round where the day is made up for."""
    bank.lines = (line(known(open_attempt(), days_ago=1)),)
    for days in days_ago:
        bills.compare(account="wechat", day=DAY - timedelta(days=days))
    assert (listed(), [*Difference.objects.values_list("resolution", flat=True)]) == ([], resolved)


def test_a_fact_days_later_is_looked_for_when_payable(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt, invented = open_attempt(), open_attempt()
    for days, one in ((3, attempt), (40, invented)):
        began = attempt.created_at - timedelta(days=days)
        Attempt.objects.filter(pk=one.pk).update(created_at=began, expires_at=began + timedelta(hours=1))
    by_word = [paid(one, provider_txn_id=one.out_trade_no) for one in (attempt, invented)]
    fold(*by_word, source=BY_HAND)
    refund = asked_back(attempt, bank, "processing")
    long_ago = [attempt.created_at - timedelta(days=days) for days in (20, 17)]
    Refund.objects.filter(pk=refund.pk).update(created_at=long_ago[0], submitted_at=long_ago[1])
    went_back = refunded(attempt, 990, refund.out_refund_no)
    fold(replace(went_back, provider_txn_id=refund.out_refund_no), source=BY_HAND)
    day = Observation.objects.get(attempt=attempt, kind="paid").observed_at.date()
    began = attempt.created_at.date()
    bank.others[began - timedelta(days=3)] = (line(attempt),)
    bank.others[began - timedelta(days=17)] = (refund_line(attempt, 990, refund.out_refund_no),)
    bills.compare(account="wechat", day=day)
    assert open_ones() == [("missing_there", "paid")]
    assert Difference.objects.get().out_trade_no == invented.out_trade_no
    bills.compare(account="wechat", day=began - timedelta(days=3))  # which learns the provider's own number
    bills.compare(account="wechat", day=day)
    assert (len(listed()), Observation.objects.filter(kind="paid").count()) == (1, 3)
    assert payment_of(attempt).paid_minor == 1990


@pytest.mark.parametrize("days_later", [0, 1])
def test_a_recorded_outcome_is_resolved_by_its_line(
    open_attempt: OpenAttempt, bank: Bank, days_later: int
) -> None:
    attempt = open_attempt()
    fold(paid(attempt, provider_txn_id=attempt.out_trade_no), source=BY_HAND)
    day = Observation.objects.get().observed_at.date()
    bills.compare(account="wechat", day=day)
    assert [kind for kind, *_ in listed()] == ["missing_there"]
    bank.others[day + timedelta(days=days_later)] = (line(attempt),)
    bills.compare(account="wechat", day=day + timedelta(days=days_later))
    assert listed() == []


def test_what_came_back_of_a_recorded_refund_is_a_difference(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt = known(open_attempt())
    number = asked_back(attempt, bank, "processing").out_refund_no
    went_back = refunded(attempt, 990, number)
    fold(replace(went_back, provider_txn_id=number, occurred_at=NOON), source=BY_HAND)
    failed = replace(refund_line(attempt, 990, number), refund_status=RefundStatus.FAILED)
    numbers = {"out_trade_no": "", "provider_txn_id": "txn_1", "out_refund_no": number}
    came_back = line(attempt, **numbers, amount_minor=990, takes_back=failed.provider_txn_id)
    bank.lines = (line(attempt), failed, came_back)
    compared = bills.compare(account="wechat", day=DAY)
    assert [(kind, moved, theirs) for kind, moved, theirs, _ in listed()] == [("missing_here", "paid", 990)]
    assert (compared.theirs_minor, compared.ours_minor) == (1990, 1000)


def test_the_timer_takes_the_days_that_are_left_and_goes_on_after_a_failure(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    bank.failure_of_bill = ProviderUnavailable("not made yet")
    assert bills.compare_recent(now=NEXT_NOON) == 0
    bank.failure_of_bill, broken = None, DAY - timedelta(days=1)
    bank.others[broken] = RuntimeError("a line that nobody understands")
    with pytest.raises(ExceptionGroup) as failed:
        bills.compare_recent(now=NEXT_NOON)
    assert list(map(str, failed.value.exceptions)) == ["a line that nobody understands"]
    assert f"The bill of wechat for {broken} could not be compared" in caplog.text
    assert BillComparison.objects.count() == bills.DAYS_BACK - 1
    del bank.others[broken]
    assert [bills.compare_recent(now=NEXT_NOON) for _ in range(2)] == [1, 0]
    compared = sorted(BillComparison.objects.values_list("day", flat=True))
    assert compared == [DAY - timedelta(days=2), DAY - timedelta(days=1), DAY]


@pytest.mark.parametrize(("days_ago", "kept_days", "runs"), [(17, 90, [7, 7, 4, 0]), (40, 12, [7, 5, 0])])
def test_days_that_no_bill_was_had_of_are_made_up_for_while_bills_are_kept(
    open_attempt: OpenAttempt,
    bank: Bank,
    monkeypatch: pytest.MonkeyPatch,
    days_ago: int,
    kept_days: int,
    runs: list[int],
) -> None:
    """The newest first, a few in each run, from the first fact on."""
    monkeypatch.setattr(bills, "BILLS_KEPT_DAYS", kept_days)
    known(open_attempt(), days_ago=days_ago)
    compared: list[list[date]] = []
    for _ in runs:
        before = set(BillComparison.objects.values_list("day", flat=True))
        bills.compare_recent(now=NEXT_NOON)
        compared.append(sorted(set(BillComparison.objects.values_list("day", flat=True)) - before))
    assert [len(days) for days in compared] == runs
    assert (compared[0][0], compared[-2][0]) == (DAY - timedelta(days=6), DAY - timedelta(days=sum(runs) - 1))


@pytest.mark.parametrize(("hours", "newest"), [(-8, DAY - timedelta(days=1)), (-2, DAY), (8, DAY)])
def test_the_timer_compares_no_day_that_is_not_over_at_the_provider(bank: Bank, hours: int, newest: date) -> None:
    """Half of it would count as done."""
    bank.zone = timezone(timedelta(hours=hours))
    compare_bills(timestamp=int(datetime(2026, 11, 21, 2, 30, tzinfo=UTC).timestamp()))
    assert BillComparison.objects.order_by("day").values_list("day", flat=True).last() == newest


def test_the_last_hour_of_a_day_of_25_hours_is_looked_at(open_attempt: OpenAttempt, bank: Bank) -> None:
    bank.zone, day = ZoneInfo("America/New_York"), date(2026, 11, 1)  # summer time ends
    fold(paid(open_attempt(), occurred_at=datetime(2026, 11, 1, 23, 30, tzinfo=bank.zone)), source="query")
    bills.compare(account="wechat", day=day)
    assert open_ones() == [("missing_there", "paid")]


def asked_back(attempt: Attempt, bank: Bank, status: str) -> Refund:
    """A refund of ours in that state, which Stripe knows as ``re_1``."""
    refund = refund_asked(attempt.payment_id, 990)
    assert refunds.submit_refund(refund.id).status == "processing"
    if status == "succeeded":
        fact = refunded(attempt, 990, refund.out_refund_no)
        fold(replace(fact, provider_txn_id="re_1", occurred_at=NOON), source="notification")
    if status == "failed":
        with pytest.MonkeyPatch.context() as patch:
            failed = RefundResult(status=RefundStatus.FAILED)
            patch.setattr(bank, "query_refund", lambda **_: failed)
            refunds.submit_refund(refund.id)
    refund.refresh_from_db()
    assert refund.status == status
    return refund


def of_stripe(attempt: Attempt, status: str, out_refund_no: str = "", *, kind: str = "payment_refund") -> BillLine:
    """The line of a balance transaction; `kind` is ``refund_failure`` for what came back."""
    numbers = {"out_trade_no": attempt.out_trade_no}
    source = {
        "object": "refund",
        "id": "re_1",
        "status": status,
        "amount": 990,
        "currency": "cny",
        "metadata": {**numbers, "out_refund_no": out_refund_no} if out_refund_no else {},
        "payment_intent": {"id": "pi_1", "metadata": numbers},
    }
    entry = {"type": kind, "id": f"txn_{kind}", "created": int(NOON.timestamp()), "source": source}
    return bill_line(entry)


AGREES: list[tuple[str, str]] = []
A_PERSON_LOOKS = [("missing_here", "refunded")]


@pytest.mark.parametrize(
    ("ours", "theirs", "found", "back_minor"),
    [
        # the timer asks about it until it ends
        ("processing", "pending", AGREES, 0),
        ("processing", "succeeded", AGREES, 990),
        ("processing", "failed", AGREES, 0),
        # it went out; what comes back is another line
        ("succeeded", "pending", AGREES, 990),
        ("succeeded", "succeeded", AGREES, 990),
        ("succeeded", "failed", AGREES, 990),
        # nobody asks about it any more
        ("failed", "pending", A_PERSON_LOOKS, 0),
        ("failed", "succeeded", AGREES, 990),
        ("failed", "canceled", AGREES, 0),
        # by hand, in the dashboard: nobody notifies us
        ("", "pending", A_PERSON_LOOKS, 0),
        ("", "succeeded", AGREES, 990),
        ("", "failed", AGREES, 0),
    ],
)
def test_a_refund_in_stripe_s_bill_is_a_fact_once_it_has_succeeded(
    open_attempt: OpenAttempt, bank: Bank, ours: str, theirs: str, found: list[tuple[str, str]], back_minor: int
) -> None:
    attempt = known(open_attempt())
    number = asked_back(attempt, bank, ours).out_refund_no if ours else ""
    bank.lines = (line(attempt), of_stripe(attempt, theirs, number))
    compared = bills.compare(account="wechat", day=DAY)
    assert open_ones() == found
    assert (payment_of(attempt).refunded_minor, order_of(attempt).status) == (back_minor, "paid")
    assert compared.theirs_minor == 1990 - (990 if found else back_minor)
    if ours:
        assert Refund.objects.get().status == ("succeeded" if back_minor else ours)


@pytest.mark.parametrize(("ours", "found"), [("succeeded", [("missing_here", "paid")]), ("failed", AGREES)])
def test_what_came_back_of_a_refund_is_for_a_person_if_that_had_counted(
    open_attempt: OpenAttempt, bank: Bank, ours: str, found: list[tuple[str, str]]
) -> None:
    attempt = known(open_attempt())
    number = asked_back(attempt, bank, ours).out_refund_no
    both = (of_stripe(attempt, "failed", number), of_stripe(attempt, "failed", number, kind="refund_failure"))
    bank.lines = (line(attempt), *both)
    bills.compare(account="wechat", day=DAY)
    assert open_ones() == found


@pytest.mark.parametrize(("days", "by_hand"), [(5, False), (14, True)])
def test_a_slow_refund_of_wechat_s_is_found_in_the_bill_of_the_day_that_accepted_it(
    open_attempt: OpenAttempt, bank: Bank, days: int, by_hand: bool
) -> None:
    """Its bill is made once, and says for ever that the refund is under way."""
    attempt, accepted = known(open_attempt(), days_ago=days), DAY - timedelta(days=days)
    number = "by-hand-1" if by_hand else asked_back(attempt, bank, "processing").out_refund_no
    under_way = replace(refund_line(attempt, 990, number), refund_status=RefundStatus.PROCESSING)
    bank.others[accepted] = (line(attempt), under_way)
    bills.compare(account="wechat", day=accepted)
    assert open_ones() == (A_PERSON_LOOKS if by_hand else AGREES)
    missing = known(open_attempt(), days_ago=30)
    for one, refund_number in ((attempt, number), (missing, "never-listed")):
        fold(replace(refunded(one, 990, refund_number), occurred_at=NOON), source="notification")
    bills.compare(account="wechat", day=DAY)
    assert open_ones() == [("missing_there", "refunded")]
    assert Difference.objects.get(resolved_at__isnull=True).out_trade_no == missing.out_trade_no


def test_what_is_too_long_for_us_is_cut_and_learned_from_nobody(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt = known(open_attempt())
    bank.lines = (
        line(attempt),
        line(attempt, out_trade_no="e" * 65, provider_txn_id="4" * 65, out_refund_no="r" * 65),
        refund_line(attempt, 90, "r" * 65),
    )
    bills.compare(account="wechat", day=DAY)
    assert sorted((kind, moved) for kind, moved, *_ in listed()) == [
        ("missing_here", "paid"),
        ("missing_here", "refunded"),
    ]
    assert set(Difference.objects.values_list("out_refund_no", flat=True)) == {"r" * 64}
    assert payment_of(attempt).refunded_minor == 0


@pytest.mark.parametrize(
    "stated",
    [{"amount_minor": "1990"}, {"amount_minor": 2**63}, {"currency": "YUAN"}, {"provider_txn_id": "4\x00"}],
    ids=str,
)
def test_a_bill_with_a_line_that_is_none_is_not_had(
    open_attempt: OpenAttempt, bank: Bank, stated: dict[str, Any]
) -> None:
    bank.lines = (line(open_attempt(), **stated),)
    with pytest.raises(ProviderError, match=next(iter(stated))):
        bills.compare(account="wechat", day=DAY)
    assert not BillComparison.objects.exists()


@pytest.mark.parametrize("ended_by", ["it agrees now", "looked up in their console"])
def test_an_empty_bill_of_a_day_with_facts_is_asked_for_again_until_it_agrees_or_a_person_ends_that(
    open_attempt: OpenAttempt, bank: Bank, caplog: pytest.LogCaptureFixture, ended_by: str
) -> None:
    attempt = known(open_attempt())
    assert [bills.compare_recent(now=NEXT_NOON) for _ in range(2)] == [bills.DAYS_BACK, 1]
    assert "is empty, but we have facts of it: 1" in caplog.text
    assert open_ones() == [("missing_there", "paid")]
    if ended_by == "it agrees now":
        bank.lines = (line(attempt),)
        assert bills.compare_recent(now=NEXT_NOON) == 1
    else:
        bills.resolve(Difference.objects.get().pk, resolution=ended_by)
    assert (listed(), Difference.objects.get().resolution) == ([], ended_by)
    assert bills.compare_recent(now=NEXT_NOON) == 0


def test_no_cell_of_a_spreadsheet_is_a_formula(open_attempt: OpenAttempt, bank: Bank) -> None:
    attempt = open_attempt()
    before = ["", " ", "\n", "\r\n", "\t", " \u00a0\n "]
    given = {
        f"4200-{n}{sign}": f"{blank}{sign}HYPERLINK(1)" for n, blank in enumerate(before) for sign in "=+-@＝"
    }
    bank.lines = tuple(line(attempt, out_trade_no=cell, provider_txn_id=number) for number, cell in given.items())
    bills.compare(account="wechat", day=DAY)
    rows = csv.DictReader(io.StringIO("".join(spreadsheet.export(Difference.objects.all())), newline=""))
    assert {row["provider_txn_id"]: row["out_trade_no"] for row in rows} == {
        number: f"'{cell}" for number, cell in given.items()
    }


def test_the_command_compares_and_exports(open_attempt: OpenAttempt, bank: Bank, capsys: Any) -> None:
    bank.lines = (line(open_attempt(), out_trade_no="=1+2", provider_txn_id="4200-unknown"),)
    call_command("bills", "compare", "--day", "2026-11-20")
    assert "1 lines, theirs 19.90 CNY, ours 0.00 CNY, 1 open differences" in capsys.readouterr().out
    call_command("bills", "export", "--open", "--channel", "wechat", "--day", "2026-11-20")
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    said = (row["kind"], row["theirs_minor"], row["ours_minor"], row["day"])
    assert said == ("missing_here", "1990", "", "2026-11-20")
    assert row["out_trade_no"] == "'=1+2"  # no formula for a spreadsheet
    bank.failure_of_bill = ProviderUnavailable("not made yet")
    with pytest.raises(CommandError, match="No bill of wechat"):
        call_command("bills", "compare", "--day", "2026-11-20")
    for action in ("compare", "export"):
        with pytest.raises(CommandError, match="'coins' is not configured"):
            call_command("bills", action, "--channel", "coins")
    for day in ("2026-02-30", "yesterday", "0001-01-01"):
        with pytest.raises(CommandError, match="must be a day such as"):
            call_command("bills", "compare", "--day", day)
    with pytest.raises(CommandError, match="is not over at wechat"):
        call_command("bills", "compare", "--day", datetime.now(UTC).date().isoformat())


def test_the_command_compares_the_accounts_yesterday(bank: Bank) -> None:
    now = datetime.now(UTC)
    bank.zone = timezone(timedelta(hours=12 if now.hour >= 12 else -12))  # where it is another day by now
    call_command("bills", "compare")
    yesterday = now.astimezone(bank.zone).date() - timedelta(days=1)
    assert BillComparison.objects.get().day == yesterday != now.date() - timedelta(days=1)


def test_a_spreadsheet_keeps_every_digit_of_a_number(
    open_attempt: OpenAttempt, bank: Bank, admin_client: Client, capsys: Any
) -> None:
    number = "4200001234567890123456789012"
    bank.lines = (line(open_attempt(), out_trade_no="elsewhere", provider_txn_id=number),)
    bills.compare(account="wechat", day=DAY)
    found = Difference.objects.get()
    for resolution, cell in ((number, f"{number}\t"), (f"paid,{number},twice",) * 2, ("12e34", "12e34\t")):
        bills.resolve(found.pk, resolution=resolution)
        export = f"/admin/payments/difference/csv/?comparison={found.comparison_id}"
        _, row = csv.reader(b"".join(admin_client.get(export)).decode("utf-8-sig").splitlines())
        assert (f"{number}\t" in row, row[-1]) == (True, cell)
        Difference.objects.update(resolved_at=None)
    call_command("bills", "export")
    assert f",{number},1990,," in capsys.readouterr().out


def test_a_difference_is_never_deleted(open_attempt: OpenAttempt, bank: Bank) -> None:
    bank.lines = (line(open_attempt(), out_trade_no="elsewhere"),)
    bills.compare(account="wechat", day=DAY)
    with pytest.raises(DatabaseError, match="money stays"):
        Difference.objects.all().delete()


def test_a_person_settles_a_difference_in_the_admin(open_attempt: OpenAttempt, bank: Bank, client: Client) -> None:
    bank.lines = (line(open_attempt(), out_trade_no="elsewhere", provider_txn_id="4200-unknown"),)
    compared = bills.compare(account="wechat", day=DAY)
    row, listed_at = Difference.objects.get(), "/admin/payments/difference/"
    reader = User.objects.create_user("reader", is_staff=True)

    def may(*codenames: str) -> None:
        reader.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
        client.force_login(reader)

    def shown(address: str, **query: Any) -> str:
        return b"".join(client.get(address, query)).decode()

    client.force_login(reader)
    for address in (listed_at, f"{listed_at}csv/"):
        assert client.get(address).status_code == 403
    may("view_difference", "view_billcomparison")
    page = f"{listed_at}{row.pk}"
    page_text = shown(f"{page}/change/")
    assert ("unknown to us" in page_text, "/resolve/" in page_text) == (True, False)
    assert client.get(f"{page}/resolve/").status_code == 403
    for term, count in (("4200-unknown", 1), ("4200", 0)):
        assert client.get(listed_at, {"q": term}).context["cl"].result_count == count
    assert f"?comparison={compared.pk}" in shown("/admin/payments/billcomparison/")
    assert "19.90 CNY" in shown(f"/admin/payments/billcomparison/{compared.pk}/change/")
    for query in ({}, {"comparison": compared.pk}):
        assert "4200-unknown" in shown(f"{listed_at}csv/", **query)
    may("resolve_difference")
    asked = shown(f"{page}/resolve/")
    assert "moves no money" in asked
    assert f"4200-unknown of WeChat Pay {DAY} {compared.merchant}." in asked
    assert client.post(f"{page}/resolve/", {"reason": ""}).status_code == 200
    for _ in range(2):
        assert client.post(f"{page}/resolve/", {"reason": "the other shop's"}).status_code == 302
    row.refresh_from_db()
    assert row.resolution == "the other shop's"
    entry = AuditEntry.objects.get()
    assert (entry.operator, "the other shop's" in entry.message) == (reader.username, True)
    assert "the other shop&#x27;s" in shown(f"{page}/history/")
    assert "4200-unknown" not in shown(listed_at)
    assert "4200-unknown" in shown(listed_at, state="all")


def test_comparisons_are_found_by_their_day_and_their_account(admin_client: Client) -> None:
    sums = {"lines": 0, "currency": "CNY", "theirs_minor": 0, "ours_minor": 0}
    for day in (date(2026, 1, 31), date(2026, 2, 1), date(2026, 2, 28)):
        for channel in ("wechat", "alipay"):
            BillComparison.objects.create(channel=channel, merchant=f"of-{channel}", day=day, **sums)

    def listed(**query: str) -> list[str]:
        found = admin_client.get("/admin/payments/billcomparison/", query).context["cl"].result_list
        return [f"{row.channel} {row.day:%m-%d}" for row in found]

    assert listed(q=" 2026-02-01 ") == ["alipay 02-01", "wechat 02-01"]
    assert listed(q="2026-02", channel="wechat") == ["wechat 02-28", "wechat 02-01"]
    assert [listed(o=column) == listed() for column in "01234567"] == [True] * 8  # it would sort the whole table
    assert listed(q="of-alipay") == ["alipay 02-28", "alipay 02-01", "alipay 01-31"]
    assert listed(q="2026") == listed(q="2026-13") == listed(q="of-") == listed(q="2025-02") == []
