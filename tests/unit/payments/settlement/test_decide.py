"""All orders, copies and mixtures of the facts of one payment end alike."""

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payments.providers.base import Fact, FactKind, closed_fact
from payments.providers.disputes import Dispute, DisputeStatus
from payments.settlement.decide import decide, facts_of, refresh
from payments.settlement.decision import Booking, Decision, OrderEvent, Outcome
from payments.settlement.journal import INCOMING
from payments.settlement.state import BY_HAND, AttemptRow, FactRow, PaymentRow, PaymentState, RefundRow
from payments.states import AnomalyKind, AttemptStatus, PaymentStatus, RefundStatus

PAYMENT, ORDER = uuid.UUID(int=1), uuid.UUID(int=2)
WECHAT, ALIPAY, STRIPE = uuid.UUID(int=3), uuid.UUID(int=4), uuid.UUID(int=5)
CHANNEL = {WECHAT: "wechat", ALIPAY: "alipay", STRIPE: "stripe"}
PRICE_MINOR = 1990


def payment(*attempts: uuid.UUID, refunds: Sequence[RefundRow] = ()) -> PaymentState:
    return PaymentState(
        payment=PaymentRow(PAYMENT, ORDER, "CNY", PaymentStatus.PENDING.value, 1, 0, 0, 0),
        attempts=tuple(
            AttemptRow(one, CHANNEL[one], f"merchant of {CHANNEL[one]}", PRICE_MINOR, "CNY", "pending")
            for one in attempts
        ),
        refunds=tuple(refunds),
        charging_again=frozenset({"stripe"}),
    )


def paid(attempt: uuid.UUID = WECHAT, number: str = "4200", amount_minor: int = PRICE_MINOR) -> Fact:
    channel = CHANNEL[attempt]
    return Fact(
        kind=FactKind.PAID,
        channel=channel,
        merchant=f"merchant of {channel}",
        out_trade_no=attempt.hex,
        provider_txn_id=number,
        amount_minor=amount_minor,
        currency="CNY",
    )


def refunded(
    amount_minor: int, number: str, *, attempt: uuid.UUID = WECHAT, of: str = "4200", implies: bool = False
) -> Fact:
    return replace(
        paid(attempt, number, amount_minor),
        kind=FactKind.REFUNDED,
        out_refund_no=number,
        paid_txn_id=of,
        paid_minor=PRICE_MINOR if implies else None,
    )


def closed(attempt: uuid.UUID = WECHAT) -> Fact:
    channel = CHANNEL[attempt]
    return closed_fact(channel=channel, merchant=f"merchant of {channel}", out_trade_no=attempt.hex)


def whole(attempt: uuid.UUID = ALIPAY) -> Fact:
    """Alipay's word that all went back; it implies the payment."""
    fact = refunded(PRICE_MINOR, attempt.hex, attempt=attempt, implies=True)
    return replace(fact, out_refund_no="", is_whole=True)


def disputed(status: DisputeStatus, minute: int, *, due: int | None = None, number: str = "du_1") -> Fact:
    """What a provider states of a dispute in that minute; it moves nothing."""
    said = Dispute(status=status, reason="fraudulent", respond_by=None if due is None else at(due))
    stated = replace(paid(WECHAT, number), kind=FactKind.DISPUTED, paid_txn_id="4200", dispute=said)
    return replace(stated, occurred_at=at(minute))


def moved_by(kind: FactKind, amount_minor: int = PRICE_MINOR, number: str = "du_1") -> Fact:
    return replace(paid(WECHAT, number, amount_minor), kind=kind, paid_txn_id="4200")


def at(minute: int) -> datetime:
    return datetime(2026, 11, 27, tzinfo=UTC) + timedelta(minutes=minute)


@dataclass
class Books:
    """Balances as the journal's statements would make them."""

    balance: Counter[str]

    def book(self, decision: Decision) -> None:
        for booking in decision.bookings:
            if booking.amount_minor and booking.fact.kind != FactKind.CLOSED:
                self._move(booking, there=f"provider:{booking.fact.channel}")
        for fact in decision.now_counted:
            sign = 1 if fact.kind == FactKind.PAID else -1
            self.balance["held"] += sign * fact.amount_minor
            self.balance["orders"] -= sign * fact.amount_minor

    def _move(self, booking: Booking, *, there: str) -> None:
        sign = 1 if booking.fact.kind in INCOMING else -1
        self.balance[there] += sign * booking.amount_minor
        here = "orders" if booking.fact.credited else "held"
        if booking.fact.kind in (FactKind.TAKEN, FactKind.RETURNED):
            here = "disputed"
        self.balance[here] -= sign * booking.amount_minor


@dataclass(frozen=True)
class End:
    """What must not depend on order or copies."""

    totals: tuple[str, int, int, int, int]
    attempts: tuple[tuple[str, str], ...]
    refunds: tuple[tuple[uuid.UUID, str], ...]
    given_back_minor: int
    filed: tuple[str, ...]
    books: tuple[tuple[str, int], ...]
    disputes: tuple[tuple[str, str], ...]  # what a person reads of each at last


def settled(
    state: PaymentState, reported: Iterable[Fact], *, order_takes: bool = True, by_hand: Sequence[Fact] = ()
) -> End:
    """Decide on facts as the shell does, on those that an operator recorded first; the end."""
    books, filed, given_back = Books(Counter()), set[str](), dict[uuid.UUID, int]()
    rows = dict[str, Any]()
    recorded = [(fact, BY_HAND) for fact in by_hand]
    for fact, source in [*recorded, *((implied, "query") for one in reported for implied in facts_of(one))]:
        decision = decide(state, fact, source=source)
        if OrderEvent.PAID in decision.order_events and not order_takes:
            decision = decide(replace(state, order_accepts_payment=False), fact, source=source)
        books.book(decision)
        filed |= {filing.kind.value for filing in decision.filings}
        rows |= {one.reference: one.detail for one in decision.filings if one.kind is AnomalyKind.DISPUTED}
        given_back |= {one.refund.id: one.refund.amount_minor for one in decision.filings if one.refund}
        assert decision.state is not None
        state = decision.state
    row = state.payment
    balances = {name: minor for name, minor in books.balance.items() if minor}
    assert sum(balances.values()) == 0
    assert balances.get("orders", 0) == row.refunded_minor - row.paid_minor
    return End(
        totals=(row.status, row.paid_minor, row.refunded_minor, row.reserved_minor, row.disputed_minor),
        attempts=tuple((one.channel, one.status) for one in state.attempts),
        refunds=tuple((one.id, one.status) for one in state.refunds),
        given_back_minor=sum(given_back.values()),
        filed=tuple(sorted(filed)),
        books=tuple(sorted(balances.items())),
        disputes=tuple(sorted((name, str(sorted(detail.items()))) for name, detail in rows.items())),
    )


@pytest.mark.parametrize(
    ("limits", "goes_back"),
    [({}, True), ({"USD": 0}, True), ({"CNY": PRICE_MINOR}, True), ({"CNY": PRICE_MINOR - 1}, False)],
)
def test_a_refund_above_the_limit_waits_for_approval(limits: dict[str, int], goes_back: bool) -> None:
    state = replace(payment(WECHAT, ALIPAY), approve_above=limits)
    once = decide(state, paid(), source="query").state
    [filing] = decide(once, paid(ALIPAY), source="query").filings
    assert (filing.refund is not None, filing.detail.get("approval")) == (
        (True, None) if goes_back else (False, "needed")
    )


OURS = RefundRow(uuid.UUID(int=9), WECHAT, 990, "CNY", RefundStatus.PROCESSING.value, None)

POOL = {
    "one trade": (
        payment(WECHAT, refunds=[OURS]),
        [
            paid(),
            closed(),
            refunded(990, OURS.id.hex),
            refunded(1000, "a" * 32, implies=True),
            refunded(990, OURS.id.hex, implies=True),
        ],
    ),
    "all of it went back": (payment(ALIPAY), [paid(ALIPAY), closed(ALIPAY), whole(), whole(), paid(ALIPAY)]),
    "another trade that nobody pays": (
        payment(WECHAT, ALIPAY),
        [paid(), closed(), closed(ALIPAY), refunded(990, "a" * 32), refunded(1000, "b" * 32)],
    ),
    "a refund that names the charge by another number": (
        payment(WECHAT),
        [paid(), refunded(990, "a" * 32, of="as the bank has it"), refunded(1000, "b" * 32)],
    ),
    "a dispute that is won": (
        payment(WECHAT),
        [
            paid(),
            disputed(DisputeStatus.OPEN, 1, due=90),
            moved_by(FactKind.TAKEN),
            disputed(DisputeStatus.WON, 3, due=90),
            moved_by(FactKind.RETURNED),
        ],
    ),
    "a dispute that opens again and is lost, beside a refund": (
        payment(WECHAT),
        [
            paid(),
            disputed(DisputeStatus.OPEN, 1, due=90),
            disputed(DisputeStatus.OPEN, 2, due=95),
            disputed(DisputeStatus.OPEN, 3, due=90),
            disputed(DisputeStatus.LOST, 3, due=90),
        ],
    ),
    "two disputes of one charge": (
        payment(WECHAT),
        [
            moved_by(FactKind.TAKEN, 990),
            moved_by(FactKind.TAKEN, 1000, "du_2"),
            disputed(DisputeStatus.LOST, 2, number="du_2"),
            disputed(DisputeStatus.WON, 2),
            refunded(990, "a" * 32),
        ],
    ),
}


@pytest.mark.parametrize("name", POOL)
def test_every_order_of_up_to_five_facts_ends_alike(name: str) -> None:
    state, pool = POOL[name]
    for size in range(1, 6):
        for chosen in itertools.combinations(range(len(pool)), size):
            ends = {settled(state, [pool[one] for one in order]) for order in itertools.permutations(chosen)}
            assert len(ends) == 1, chosen


@pytest.mark.parametrize("name", POOL)
@given(data=st.data())
@settings(max_examples=40)
def test_any_number_of_copies_in_any_order_ends_alike(name: str, data: st.DataObject) -> None:
    state, pool = POOL[name]
    copies = [fact for fact in pool for _ in range(data.draw(st.integers(1, 3)))]
    assert settled(state, data.draw(st.permutations(copies))) == settled(state, pool)


@given(
    reported=st.permutations([paid(), paid(ALIPAY), paid(STRIPE, "pi_1"), paid(STRIPE, "pi_2"), closed(STRIPE)]),
    copies=st.integers(1, 3),
    order_takes=st.booleans(),
)
@settings(max_examples=40)
def test_one_charge_counts_and_the_others_go_back(reported: list[Fact], copies: int, order_takes: bool) -> None:
    """Which one counts follows from the order of arrival; how much does not."""
    end = settled(payment(WECHAT, ALIPAY, STRIPE), reported * copies, order_takes=order_takes)
    assert end.totals[1:3] == (PRICE_MINOR if order_takes else 0, 0)
    assert end.given_back_minor == PRICE_MINOR * (3 if order_takes else 4)
    assert dict(end.attempts) == dict.fromkeys(("wechat", "alipay", "stripe"), AttemptStatus.SUCCEEDED.value)
    received = {name: minor for name, minor in end.books if name.startswith("provider:")}
    assert received == {
        "provider:wechat": PRICE_MINOR,
        "provider:alipay": PRICE_MINOR,
        "provider:stripe": 2 * PRICE_MINOR,
    }


def test_a_first_payment_asks_the_order_and_changes_nothing_of_the_state_it_was_given() -> None:
    state = payment(WECHAT, ALIPAY)
    decision = decide(state, paid(), source="notification")
    assert state == payment(WECHAT, ALIPAY)
    assert decision.order_events == (OrderEvent.PAID,)
    assert [one.id for one in decision.to_close] == [ALIPAY]
    assert [(one.status, one.version) for one in decision.events] == [("succeeded", 2)]


def test_a_charge_goes_back_under_one_number_however_often_it_is_decided() -> None:
    """Also after a restore that forgot the first time: the provider refunds a number once."""
    first, second = (
        decide(payment(WECHAT), paid(amount_minor=1), source=source).filings[0] for source in ("query", "bill")
    )
    assert first.refund is not None
    assert first.refund == second.refund


def test_our_refund_in_another_amount_counts_as_stated_and_is_filed() -> None:
    """The money has moved, and nobody asked for so much: a person must see it."""
    state = decide(payment(WECHAT, refunds=[OURS]), paid(), source="query").state
    decision = decide(state, replace(refunded(1500, "5030"), out_refund_no=OURS.id.hex), source="notification")
    (filing,) = decision.filings
    assert (decision.outcome, filing.kind) == (Outcome.ANOMALY, AnomalyKind.CONTENT_CHANGED)
    assert (filing.detail["first_minor"], filing.detail["amount_minor"]) == (OURS.amount_minor, 1500)
    assert decision.state is not None
    assert decision.state.payment.refunded_minor == 1500


def test_a_closing_in_another_currency_is_the_same_one() -> None:
    """It moves no money; we state it in one currency, and the provider in that of the trade."""
    known = decide(payment(WECHAT), closed(), source="close").state
    again = decide(known, replace(closed(), currency="EUR"), source="notification")
    assert (again.outcome, again.filings) == (Outcome.DUPLICATE, ())


def test_a_dispute_of_another_account_moves_nothing() -> None:
    theirs = replace(moved_by(FactKind.TAKEN), merchant="theirs")
    decision = decide(payment(WECHAT), theirs, source="notification")
    assert ([one.kind for one in decision.filings], decision.bookings) == ([AnomalyKind.MERCHANT_MISMATCH], ())


def test_an_impossible_step_is_refused() -> None:
    state = payment(WECHAT)
    broken = replace(state, payment=replace(state.payment, status="refunded", paid_minor=PRICE_MINOR))
    with pytest.raises(RuntimeError, match="refunded -> succeeded is not a step"):
        refresh(replace(broken, facts=(stored(paid(), credited=True),)))


def stored(fact: Fact, *, credited: bool) -> FactRow:
    decision = decide(payment(WECHAT), fact, source="query")
    return replace(decision.bookings[0].fact, credited=credited)
