"""Many at the same instant: both ends of an order, two channels, one like."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from shop.models import Like, Order, Product
from shop.orders import checkout, lifecycle
from tests.integration.shop.conftest import Caller, placed
from tests.integration.shop.settling import number_of, on_payment, settle
from tests.threads import at_once


@pytest.mark.parametrize("turn", range(3))
def test_a_payment_against_the_cancellation_of_the_order(
    demo: User, mug: Product, channels: Any, turn: int
) -> None:
    """One of both wins, and the stock agrees with it."""
    order = placed(demo, mug=3)
    checkout.start_payment(order_id=order.id, user_id=demo.pk, channel="wechat")
    number = number_of(order.id.hex, "wechat")
    wechat = channels["wechat"]

    def pays() -> bool:
        try:
            fact = wechat.pay(number)
        except AssertionError:
            return False  # the provider had closed it before the shopper could pay
        settle(fact)
        return True

    def ends() -> Any:
        return Caller(demo).post(f"orders/{order.id.hex}/cancel", key="c").status_code

    paid, ended = at_once(pays, ends)

    order.refresh_from_db()
    mug.refresh_from_db()
    assert (order.status, paid, ended) in {("paid", True, 409), ("closed", False, 200)}
    assert mug.stock == (97 if paid else 100)


@pytest.mark.parametrize("turn", range(3))
def test_a_local_close_against_a_callback(demo: User, mug: Product, channels: Any, turn: int) -> None:
    """The narrowest race: the provider's word is in, two transactions decide on one row."""
    order = placed(demo, mug=3)
    Order.objects.update(closing_at=timezone.now())

    def takes(event: str) -> bool:
        with transaction.atomic():
            return on_payment(order_id=order.id, event=event)

    paid, _, again = at_once(lambda: takes("paid"), lambda: takes("closed"), lambda: takes("paid"))

    order.refresh_from_db()
    mug.refresh_from_db()
    assert paid == again == (order.status == "paid")
    assert (order.status, mug.stock) in {("paid", 97), ("closed", 100)}
    assert order.version == 2


def test_many_ends_put_the_units_back_once(demo: User, mug: Product, channels: Any) -> None:
    order = placed(demo, mug=3)
    Order.objects.update(expires_at=timezone.now() - timedelta(minutes=1))

    at_once(
        *[lambda: lifecycle.expire(order_id=order.id)] * 4,
        *[lambda: lifecycle.cancel(order_id=order.id, user_id=demo.pk)] * 4,
    )

    mug.refresh_from_db()
    assert (Order.objects.get().status, mug.stock) == ("closed", 100)


def test_two_channels_at_once_are_one_payment(demo: User, mug: Product, channels: Any) -> None:
    order = placed(demo, mug=1)
    answers = at_once(
        *[
            lambda c=channel, n=n: Caller(demo).post(
                f"orders/{order.id.hex}/payment", {"channel": c}, key=f"{c}{n}"
            )
            for channel in ("wechat", "alipay")
            for n in range(3)
        ]
    )

    assert {answer.status_code for answer in answers} <= {201, 202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert {name: len(provider.trades) for name, provider in channels.items()} == {"wechat": 1, "alipay": 1}


def test_two_editors_of_a_note_at_once(demo: User, mug: Product) -> None:
    order = placed(demo, mug=1)

    def write(n: int) -> int:
        path = f"/api/v1/orders/{order.id.hex}"
        headers = {"If-Match": '"1"'}
        return Caller(demo).http.patch(path, {"note": f"n{n}"}, format="json", headers=headers).status_code

    codes = at_once(*[lambda n=n: write(n) for n in range(6)])

    assert Counter(codes) == {200: 1, 412: 5}
    order.refresh_from_db()
    assert order.note == f"n{codes.index(200)}"


def test_many_likes_at_once_are_one(demo: User, mug: Product) -> None:
    answers = at_once(*[lambda: Caller(demo).http.put("/api/v1/products/mug/like")] * 8)

    assert {answer.status_code for answer in answers} == {204}
    assert Like.objects.count() == 1
