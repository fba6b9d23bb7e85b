"""The paid mark refuses repeats without SQL; without it the database does."""

from typing import Any
from uuid import UUID

import pytest
import redis
from django.contrib.auth.models import User
from django.test import override_settings

from shop.errors import OrderPaid
from shop.orders.checkout import start_payment
from tests.integration.shop.settling import number_of, settle


@pytest.fixture
def paid_order(order_id: str, channels: Any) -> UUID:
    """Paid, and not yet asked to be paid again: no mark stands."""
    settle(channels["wechat"].pay(number_of(order_id, "wechat")))
    return UUID(order_id)


def pay_again(order_id: UUID, user: User) -> None:
    with pytest.raises(OrderPaid):
        start_payment(order_id=order_id, user_id=user.pk, channel="wechat")


def test_a_repeat_costs_no_sql(paid_order: UUID, demo: User, django_assert_num_queries: Any) -> None:
    pay_again(paid_order, demo)  # the database refuses, and the mark is put
    with django_assert_num_queries(0):
        pay_again(paid_order, demo)


def test_the_database_refuses_without_the_mark(
    paid_order: UUID, demo: User, redis_server: redis.Redis, channels: Any
) -> None:
    pay_again(paid_order, demo)
    redis_server.flushall()
    pay_again(paid_order, demo)
    with override_settings(IDEMPOTENCY={"REDIS": None}):
        pay_again(paid_order, demo)
    assert [method for method, _ in channels["wechat"].calls].count("create") == 1


def test_a_mark_that_another_wrote_refuses_nothing(
    paid_order: UUID, caller: Any, demo: User, redis_server: redis.Redis, django_assert_num_queries: Any
) -> None:
    pay_again(paid_order, demo)
    (theirs,) = redis_server.keys("*:mark:order-paid:*")
    unpaid = caller.order(quantity=1, key="place-another").json()["id"]
    lies = [str(demo.pk), f"{demo.pk}:forged", redis_server.get(theirs)]  # the last is another order's own
    for number, planted in enumerate(lies):
        redis_server.set(theirs.replace(paid_order.hex.encode(), unpaid.encode()), planted)
        answer = caller.post(f"orders/{unpaid}/payment", {"channel": "wechat"}, key=f"pay-{number}")
        assert (answer.status_code, answer.json()["status"]) == (201, "pending")
    with django_assert_num_queries(0):  # and our own still costs none
        pay_again(paid_order, demo)


def test_a_stranger_does_not_hear_of_it(paid_order: UUID, demo: User, caller: Any, stranger: Any) -> None:
    pay_again(paid_order, demo)
    path = f"orders/{paid_order.hex}/payment"
    mine, theirs = (one.post(path, {"channel": "wechat"}, key="again") for one in (caller, stranger))
    assert (mine.status_code, mine.json()["code"]) == (409, "order_paid")
    assert (theirs.status_code, theirs.json()["code"]) == (404, "order_not_found")
