"""Money that counts, goes back or waits for a person: what a payment's facts add up to."""

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from payments.providers.base import Fact
from payments.settlement.state import PaymentState, RefundRow
from payments.states import AnomalyKind, RefundStatus
from tests.unit.payments.settlement.test_decide import (
    ALIPAY,
    PRICE_MINOR,
    STRIPE,
    WECHAT,
    closed,
    paid,
    payment,
    refunded,
    settled,
)

ONE, OTHER = "a" * 32, "b" * 32
POLICY = RefundRow(uuid.UUID(int=9), STRIPE, PRICE_MINOR, "USD", RefundStatus.REQUESTED.value, 1)
WRONG, CHANGED = AnomalyKind.AMOUNT_MISMATCH, AnomalyKind.CONTENT_CHANGED


def dollars(fact: Fact) -> Fact:
    return replace(fact, currency="USD")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What is counted as paid and refunded, given back by policy, held in the books, and filed."""

    paid: int = PRICE_MINOR
    refunded: int = 0
    back: int = 0
    held: int = 0
    filed: tuple[str, ...] = ()


def of(state: PaymentState, *facts: Fact, by_hand: tuple[Fact, ...] = (), order_takes: bool = True) -> Counts:
    end = settled(state, facts, by_hand=by_hand, order_takes=order_takes)
    _, paid_minor, refunded_minor, *_ = end.totals
    held = dict(end.books).get("held", 0)
    return Counts(paid=paid_minor, refunded=refunded_minor, back=end.given_back_minor, held=held, filed=end.filed)


CHARGES: dict[str, tuple[Callable[[], Counts], Counts]] = {
    "of nothing": (lambda: of(payment(WECHAT), paid(amount_minor=0)), Counts(paid=0, filed=(WRONG,))),
    "a second one after a wrong one": (
        lambda: of(payment(ALIPAY), paid(ALIPAY, amount_minor=5), paid(ALIPAY, "4201")),
        Counts(paid=0, back=5, held=-5, filed=(WRONG, CHANGED)),
    ),
    "a foreign one that a refund names": (
        lambda: of(payment(ALIPAY), paid(ALIPAY), refunded(90, ONE, attempt=ALIPAY, of="4201", implies=True)),
        Counts(refunded=90, filed=(CHANGED,)),
    ),
    "one at Stripe that a refund names before it is reported": (
        lambda: of(
            payment(STRIPE), paid(STRIPE), refunded(90, ONE, attempt=STRIPE, of="pi_2"), paid(STRIPE, "pi_2")
        ),
        Counts(back=PRICE_MINOR, held=90 - PRICE_MINOR, filed=(AnomalyKind.PAID_TWICE,)),
    ),
    "one that does not count and went back": (
        lambda: of(
            payment(STRIPE),
            *(paid(STRIPE, "pi_2", 1), refunded(1, ONE, attempt=STRIPE, of="pi_2"), paid(STRIPE)),
        ),
        Counts(back=1, filed=(WRONG,)),
    ),
}


@pytest.mark.parametrize("name", CHARGES)
def test_a_charge(name: str) -> None:
    counted, expected = CHARGES[name]
    assert counted() == expected


@pytest.mark.parametrize("named", ["4200", ""])
@pytest.mark.parametrize("order", [1, -1])
def test_what_went_back_in_its_charges_currency_is_at_zero_and_ends_the_refund(named: str, order: int) -> None:
    back = dollars(refunded(PRICE_MINOR, POLICY.id.hex, attempt=STRIPE, of=named))
    end = settled(payment(STRIPE, refunds=[POLICY]), (dollars(paid(STRIPE)), back)[::order])
    assert (end.totals[1:4], end.books) == ((0, 0, 0), ())
    ends = "succeeded" if order == 1 else "requested"  # before its charge is known, ours is expected
    assert end.refunds == ((POLICY.id, ends),)


RECORDED = paid(number=WECHAT.hex)
OURS = RefundRow(uuid.UUID(int=9), WECHAT, 500, "CNY", RefundStatus.PROCESSING.value, None)
WENT_BACK = refunded(500, OURS.id.hex)
CONFIRMED = replace(WENT_BACK, provider_txn_id="5030")
OF_REFUNDS = ("kind", "provider_txn_id", "amount_minor", "out_refund_no", "paid_txn_id", "paid_minor")


class TestAnOperatorRecordedIt:
    @pytest.mark.parametrize(
        ("reported", "held"),
        [(paid(), 0), (paid(number="42001"), 0), (paid(amount_minor=1980), 10), (paid(amount_minor=2090), -100)],
    )
    def test_a_payment(self, reported: Fact, held: int) -> None:
        counts = of(payment(WECHAT), reported, reported, by_hand=(RECORDED,))
        assert counts == Counts(held=held, filed=(CHANGED,) if held else ())

    def test_a_second_charge_beside_it_at_stripe(self) -> None:
        recorded, twice = paid(STRIPE, STRIPE.hex), (AnomalyKind.PAID_TWICE,)
        facts = [paid(STRIPE, number) for number in ("pi_1", "pi_2", "pi_1")]
        back = refunded(PRICE_MINOR, ONE, attempt=STRIPE, of="pi_2")
        assert of(payment(STRIPE), *facts, back, by_hand=(recorded,)) == Counts(back=PRICE_MINOR, filed=twice)
        more = of(payment(STRIPE), *facts, back, paid(STRIPE, "pi_3"), by_hand=(recorded,))
        assert more == Counts(back=2 * PRICE_MINOR, held=-PRICE_MINOR, filed=twice)

    @pytest.mark.parametrize(
        ("reported", "refunded_minor", "held"),
        [
            (CONFIRMED, 500, 0),
            (replace(CONFIRMED, paid_minor=PRICE_MINOR), 500, 0),
            (replace(CONFIRMED, amount_minor=600), 500, 100),
            (refunded(300, ONE), 800, 0),
        ],
        ids=["the same", "it implies the payment", "another amount", "another refund"],
    )
    def test_a_refund(self, reported: Fact, refunded_minor: int, held: int) -> None:
        state = payment(WECHAT, refunds=[OURS])
        counts = of(state, reported, reported, by_hand=(paid(), WENT_BACK))
        assert counts == Counts(refunded=refunded_minor, held=held, filed=(CHANGED,) if held else ())

    @pytest.mark.parametrize("attempt", [WECHAT, STRIPE])
    def test_a_refund_of_it_reported_in_any_order(self, attempt: uuid.UUID) -> None:
        charge, back = paid(attempt, "42001"), replace(CONFIRMED, paid_txn_id="42001", paid_minor=PRICE_MINOR)
        facts = [charge, replace(charge, **{name: getattr(back, name) for name in OF_REFUNDS})]
        word, theirs = paid(attempt, attempt.hex), replace(facts[1], provider_txn_id=OURS.id.hex, paid_txn_id="")
        for recorded in ((word,), (word, theirs)):
            for reported in [facts[1:], *itertools.permutations(facts)]:
                state = payment(attempt, refunds=[replace(OURS, attempt_id=attempt)])
                end = settled(state, reported, by_hand=recorded)
                assert (end.totals[1:4], end.filed, len(end.books)) == ((PRICE_MINOR, 500, 0), (), 2)

    @pytest.mark.parametrize(
        ("order_takes", "counts"),
        [
            (True, Counts()),
            (False, Counts(paid=0, back=PRICE_MINOR, held=-PRICE_MINOR, filed=("paid_after_close",))),
        ],
    )
    def test_it_was_never_paid_and_is_paid_after_all(self, order_takes: bool, counts: Counts) -> None:
        assert of(payment(WECHAT), paid(), by_hand=(closed(),), order_takes=order_takes) == counts
