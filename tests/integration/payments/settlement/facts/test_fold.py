"""Facts in any order, any number of copies and any mixture end in the same state."""

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payments.models import Anomaly, Attempt, Observation, Payment, Refund
from payments.providers.base import Fact
from payments.settlement.decision import Outcome
from payments.settlement.settle import settle_here
from shop.models import Order
from tests.integration.payments.settlement.facts.bank import closed, paid, refunded
from tests.integration.payments.settlement.facts.conftest import PRICE_MINOR, make_attempt, make_order

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("banks")]

many = settings(
    max_examples=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def tell(*facts: Fact) -> list[Outcome]:
    return [outcome for fact in facts for outcome in settle_here(fact, source="test")]


def totals(payment_id: UUID) -> tuple[str, int, int]:
    payment = Payment.objects.get(pk=payment_id)
    return payment.status, payment.paid_minor, payment.refunded_minor


def status_of(attempt: Attempt) -> tuple[str, str]:
    """Of the attempt and of the order."""
    order_id = attempt.payment.order_id
    return Attempt.objects.get(pk=attempt.pk).status, Order.objects.get(pk=order_id).status


@many
@given(data=st.data(), implies=st.booleans(), amounts=st.sampled_from([(500,), (500, 490), (500, 1490), (1990,)]))
def test_one_channel_converges(data: Any, implies: bool, amounts: tuple[int, ...]) -> None:
    attempt = make_attempt()
    number = attempt.out_trade_no
    facts = [paid(number), closed(number)]
    facts += [
        refunded(number, f"{number[:30]}-{n}", amount_minor=sum_, implies=implies)
        for n, sum_ in enumerate(amounts)
    ]
    copies = [fact for fact in facts for _ in range(data.draw(st.integers(1, 3), label="copies"))]

    outcomes = tell(*data.draw(st.permutations(copies), label="order of telling"))

    gone = sum(amounts)
    status = "refunded" if gone == PRICE_MINOR else "partially_refunded"
    assert totals(attempt.payment_id) == (status, PRICE_MINOR, gone)
    assert status_of(attempt) == ("succeeded", "refunded" if gone == PRICE_MINOR else "paid")
    assert not Anomaly.objects.filter(payment=attempt.payment).exists()
    assert Observation.objects.filter(attempt=attempt).count() == len(facts)
    assert Outcome.ANOMALY not in outcomes


@many
@given(data=st.data())
def test_two_channels_keep_one_and_give_the_other_back_once(data: Any) -> None:
    order = make_order()
    wechat, alipay = make_attempt(order, "wechat"), make_attempt(order, "alipay")
    assert wechat.payment_id == alipay.payment_id
    facts = [paid(wechat.out_trade_no), paid(alipay.out_trade_no, channel="alipay")] * data.draw(st.integers(1, 3))

    tell(*data.draw(st.permutations(facts), label="order of telling"))

    assert totals(wechat.payment_id) == ("succeeded", PRICE_MINOR, 0)
    kept = Observation.objects.get(attempt__payment=wechat.payment_id, credited=True)
    given_back = Refund.objects.get(payment=wechat.payment_id)
    assert {kept.attempt_id, given_back.attempt_id} == {wechat.pk, alipay.pk}
    assert given_back.amount_minor == PRICE_MINOR
    anomaly = Anomaly.objects.get(payment=wechat.payment_id)
    assert (anomaly.kind, anomaly.refund) == ("paid_twice", given_back)

    back = refunded(
        given_back.attempt.out_trade_no,
        given_back.out_refund_no,
        amount_minor=PRICE_MINOR,
        channel=given_back.attempt.channel,
    )
    tell(back, back)

    # what our policy gives back was never credited, so the payment's totals know nothing of it
    assert totals(wechat.payment_id) == ("succeeded", PRICE_MINOR, 0)
    anomaly.refresh_from_db()
    given_back.refresh_from_db()
    assert anomaly.resolved_at is not None
    assert given_back.status == "succeeded"


def test_a_copy_changes_nothing() -> None:
    attempt = make_attempt()

    assert tell(paid(attempt.out_trade_no), paid(attempt.out_trade_no)) == [Outcome.APPLIED, Outcome.DUPLICATE]

    assert Payment.objects.get(pk=attempt.payment_id).version == 2


def test_an_early_refund_waits_for_its_payment() -> None:
    attempt = make_attempt()
    tell(refunded(attempt.out_trade_no, "hand", amount_minor=500, implies=False))
    assert totals(attempt.payment_id) == ("pending", 0, 0)

    tell(paid(attempt.out_trade_no))

    assert totals(attempt.payment_id) == ("partially_refunded", PRICE_MINOR, 500)


def test_a_refund_implies_its_payment() -> None:
    attempt = make_attempt()

    tell(refunded(attempt.out_trade_no, "hand", amount_minor=PRICE_MINOR))

    assert totals(attempt.payment_id) == ("refunded", PRICE_MINOR, PRICE_MINOR)
    assert status_of(attempt) == ("succeeded", "refunded")


def test_a_closed_trade_may_turn_out_to_be_paid_and_not_the_other_way() -> None:
    attempt = make_attempt()
    tell(closed(attempt.out_trade_no))
    assert totals(attempt.payment_id) == ("closed", 0, 0)
    assert status_of(attempt) == ("closed", "pending")  # its own time is not over: another attempt may pay it

    tell(paid(attempt.out_trade_no), closed(attempt.out_trade_no))

    assert totals(attempt.payment_id) == ("succeeded", PRICE_MINOR, 0)
    assert status_of(attempt) == ("succeeded", "paid")


@pytest.mark.django_db(transaction=True)
def test_it_needs_a_transaction() -> None:
    attempt = make_attempt()
    with pytest.raises(RuntimeError, match="needs the caller"):
        tell(paid(attempt.out_trade_no))
    assert not Observation.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_rolls_back_may_be_told_again() -> None:
    attempt = make_attempt()

    def crash() -> None:
        with transaction.atomic():
            tell(paid(attempt.out_trade_no))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()
    assert totals(attempt.payment_id) == ("pending", 0, 0)

    with transaction.atomic():
        assert tell(paid(attempt.out_trade_no)) == [Outcome.APPLIED]
    assert totals(attempt.payment_id) == ("succeeded", PRICE_MINOR, 0)
