"""Orders in trouble: being closed, paid late, paid by two channels, refunded before paid; told in any order.

Which end an order comes to depends on what arrives first, and that is policy: of two charges the first one told is
credited, and once every attempt was told to be closed, an order that was being closed is closed and credits none. Money
never depends on it: what was charged is credited, held or given back, in the books as in the payment, whatever the
order of telling and however many copies.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from hypothesis import event, given, settings
from hypothesis import strategies as st

from payments.models import Anomaly, Attempt, Observation, Payment, Refund
from payments.providers.base import Fact, FactKind
from payments.settlement.journal import HELD, ORDERS, trial_balance
from shop.models import Order
from tests.integration.payments.settlement.facts.bank import MERCHANT, closed, paid, refunded
from tests.integration.payments.settlement.facts.conftest import PRICE_MINOR, make_attempt, make_order
from tests.integration.payments.settlement.facts.test_fold import many, tell

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("banks")]

CHANNELS = ("wechat", "alipay")
MOSTLY = st.sampled_from([True, True, False])
# what somebody gave back in the provider's own pages
BY_HAND = st.sampled_from([(), (500,), (500, 490), (PRICE_MINOR,)])


@dataclass(frozen=True, kw_only=True)
class Trade:
    """What has happened at one provider: the facts, each once, and what is there in the end."""

    attempt: Attempt
    facts: tuple[Fact, ...]
    charged_minor: int
    by_hand_minor: int


def draw_trade(data: Any, attempt: Attempt) -> Trade:
    number, channel = attempt.out_trade_no, attempt.channel
    is_charged = data.draw(MOSTLY, label=f"charged by {channel}")
    facts = [closed(number, channel=channel)] if not is_charged or data.draw(MOSTLY, label="closed") else []
    given_back: tuple[int, ...] = ()
    if is_charged:
        given_back, implies = data.draw(BY_HAND, label="by hand"), data.draw(st.booleans(), label="implies")
        facts.append(paid(number, channel=channel))
        facts += [
            refunded(number, f"{number[:30]}-{n}", amount_minor=amount, channel=channel, implies=implies)
            for n, amount in enumerate(given_back)
        ]
    return Trade(
        attempt=attempt,
        facts=tuple(facts),
        charged_minor=PRICE_MINOR * is_charged,
        by_hand_minor=sum(given_back),
    )


def told_somehow(data: Any, facts: Iterable[Fact]) -> None:
    """In any order, each up to three times."""
    copies = [fact for fact in facts for _ in range(data.draw(st.integers(1, 3), label="copies"))]
    tell(*data.draw(st.permutations(copies), label="order of telling"))


def made_by_policy(trades: Iterable[Trade]) -> list[Fact]:
    """The policy's refunds as the provider carries them out: not above what is left of the charge."""
    ours = {trade.attempt.pk: trade for trade in trades}
    return [
        refunded(
            refund.attempt.out_trade_no,
            refund.out_refund_no,
            amount_minor=refund.amount_minor,
            channel=refund.attempt.channel,
        )
        for refund in Refund.objects.filter(attempt__in=ours).select_related("attempt")
        if refund.amount_minor <= PRICE_MINOR - ours[refund.attempt_id].by_hand_minor
    ]


def charges(payment_id: UUID, *, credited: bool) -> set[UUID]:
    facts = Observation.objects.filter(attempt__payment=payment_id, kind=FactKind.PAID.value, credited=credited)
    attempts = list(facts.values_list("attempt_id", flat=True))
    assert len(attempts) == len(set(attempts)), "a charge was kept twice"
    return set(attempts)


def money_is_right(payment_id: UUID, trades: list[Trade], *, by_policy: Iterable[Fact] = ()) -> None:
    charged = {trade.attempt.pk: trade.charged_minor for trade in trades if trade.charged_minor}
    returned = {trade.attempt.pk: trade.by_hand_minor for trade in trades}
    for fact in by_policy:
        returned[UUID(hex=fact.out_trade_no)] += fact.amount_minor
    credited, uncredited = charges(payment_id, credited=True), charges(payment_id, credited=False)
    assert len(credited) <= 1
    assert credited | uncredited == charged.keys()

    payment = Payment.objects.get(pk=payment_id)
    assert payment.paid_minor == sum(charged[pk] for pk in credited)
    assert payment.refunded_minor == sum(returned[pk] for pk in credited)
    held = sum(charged[pk] - returned[pk] for pk in uncredited)
    left = payment.paid_minor - payment.refunded_minor
    assert sum(charged.values()) == left + held + sum(returned.values())

    balance = {row["account"]: row["debit_minor"] for row in trial_balance()}
    assert (-balance.get(ORDERS, 0), -balance.get(HELD, 0)) == (left, held)
    for trade in trades:
        there = balance.get(f"provider:{trade.attempt.channel}:{MERCHANT}", 0)
        assert there == trade.charged_minor - returned[trade.attempt.pk], "not what is at the provider"
    assert sum(balance.values()) == 0

    policy = Refund.objects.filter(payment=payment_id).values_list("attempt_id", "amount_minor")
    assert sorted(policy) == sorted((pk, charged[pk]) for pk in uncredited), (
        "one for each charge that does not count"
    )


def order_is_right(payment_id: UUID) -> str:
    """The order says what the payment says; its status."""
    payment = Payment.objects.get(pk=payment_id)
    order = Order.objects.get(pk=payment.order_id)
    if payment.paid_minor:
        assert order.status == ("refunded" if payment.refunded_minor == payment.paid_minor else "paid")
    else:
        assert order.status in {"pending", "closed"}
        assert order.status == "closed" or not charges(payment_id, credited=False), "it could have taken the money"
    return str(order.status)


@settings(many, max_examples=150)
@given(
    data=st.data(),
    ending=st.sampled_from(["closing", "out of time", "open"]),
    channels=st.sampled_from([CHANNELS, CHANNELS, CHANNELS[:1]]),
)
def test_the_money_is_right_whatever_the_order_of_telling(
    data: Any, ending: str, channels: tuple[str, ...]
) -> None:
    with transaction.atomic():
        tell_and_look(data, ending, channels)
        transaction.set_rollback(True)  # the books hold one order at a time


def tell_and_look(data: Any, ending: str, channels: tuple[str, ...]) -> None:
    order = make_order()
    attempts = [make_attempt(order, channel) for channel in channels]
    if ending == "closing":
        Order.objects.filter(pk=order.pk).update(closing_at=timezone.now())
    elif ending == "out of time":
        Order.objects.filter(pk=order.pk).update(expires_at=F("created_at"))
    payment_id = attempts[0].payment_id
    trades = [draw_trade(data, attempt) for attempt in attempts]
    known = [fact for trade in trades for fact in trade.facts]

    told_somehow(data, known)

    money_is_right(payment_id, trades)
    status = order_is_right(payment_id)
    event(f"{ending}: {status}, {len(charges(payment_id, credited=False))} charges not credited")

    by_policy = made_by_policy(trades)
    told_somehow(data, [*known, *by_policy])

    money_is_right(payment_id, trades, by_policy=by_policy)
    assert order_is_right(payment_id) == status, "what goes back by policy is no word about the order"
    kinds = set(Anomaly.objects.filter(payment=payment_id).values_list("kind", flat=True))
    assert kinds <= {"paid_after_close", "paid_twice"}
    done = {fact.out_refund_no for fact in by_policy}
    refunds = Refund.objects.filter(payment=payment_id).select_related("anomaly")
    assert {refund.out_refund_no for refund in refunds if refund.status == "succeeded"} == done
    assert {refund.out_refund_no for refund in refunds if refund.anomaly and refund.anomaly.resolved_at} == done
