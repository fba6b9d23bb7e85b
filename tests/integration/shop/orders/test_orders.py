"""The life of an order below the API: steps, expiry, and what the database refuses."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import F
from django.utils import timezone
from procrastinate.contrib.django import app

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown
from shop import tasks
from shop.errors import OrderNotFound
from shop.models import Order, OrderItem, OrderStatus, Product
from shop.orders import checkout, lifecycle
from tests.integration.shop.conftest import placed
from tests.integration.shop.settling import on_payment


@pytest.fixture
def order(demo: User, mug: Product, poster: Product) -> Order:
    return placed(demo, mug=2, poster=1)


def shelf() -> dict[str, int]:
    return dict(Product.objects.values_list("sku", "stock"))


def age(order: Order, **times: Any) -> None:
    Order.objects.filter(pk=order.pk).update(**times)


def minutes_ago(minutes: int) -> Any:
    return timezone.now() - timedelta(minutes=minutes)


class TestListener:
    def test_a_refund_before_its_payment_implies_the_payment(self, order: Order) -> None:
        assert on_payment(order_id=order.id, event="refunded") is True

        order.refresh_from_db()
        assert order.status == "refunded"
        assert order.paid_at is not None

    def test_an_event_that_comes_again_is_answered_alike(self, demo: User, order: Order) -> None:
        events = ("paid", "refunded", "refunded", "paid")
        assert [on_payment(order_id=order.id, event=event) for event in events] == [True] * 4
        order.refresh_from_db()
        assert (order.status, order.version) == ("refunded", 3)
        assert shelf() == {"mug": 98, "poster": 9}, "goods may have left; putting them back is a person's decision"
        closed = placed(demo, mug=1)
        lifecycle.cancel(order_id=closed.id, user_id=demo.pk)
        assert [on_payment(order_id=closed.id, event=event) for event in ("paid", "refunded")] == [False, True]

    def test_an_unknown_order_takes_nothing_and_an_unknown_event_is_a_mistake(self, order: Order) -> None:
        for event in ("paid", "refunded", "closed"):
            assert on_payment(order_id=new_id(), event=event) is False
        with pytest.raises(ValueError, match="unknown payment event"):
            on_payment(order_id=order.id, event="shipped")
        with pytest.raises(OrderNotFound):
            lifecycle.expire(order_id=new_id())

    @pytest.mark.parametrize("field", ["expires_at", "closing_at"])
    def test_closed_at_the_provider_ends_an_order_that_is_ending(self, order: Order, field: str) -> None:
        age(order, **{field: minutes_ago(1)})
        assert [on_payment(order_id=order.id, event="closed") for _ in range(2)] == [True, True]

        order.refresh_from_db()
        assert order.status == "closed"
        assert shelf() == {"mug": 100, "poster": 10}


class TestExpiry:
    def test_an_order_in_time_and_a_closing_that_is_running_are_left_alone(self, order: Order) -> None:
        assert lifecycle.expire(order_id=order.id) == OrderStatus.PENDING
        assert lifecycle.due_for_closing(now=timezone.now(), limit=10) == []
        order.refresh_from_db()
        assert order.closing_at is None
        age(order, closing_at=timezone.now())
        assert lifecycle.due_for_closing(now=timezone.now(), limit=10) == []

    def test_the_timer_closes_at_the_provider_and_puts_the_units_back_once(
        self, demo: User, order: Order, channels: Any
    ) -> None:
        checkout.start_payment(order_id=order.id, user_id=demo.pk, channel="wechat")
        age(order, expires_at=minutes_ago(1))

        assert tasks.expire_orders(timestamp=0) == 1
        assert tasks.expire_orders(timestamp=0) == 0
        assert lifecycle.expire(order_id=order.id) == OrderStatus.CLOSED
        assert [method for method, _ in channels["wechat"].calls] == ["create", "close"]
        assert shelf() == {"mug": 100, "poster": 10}

    @pytest.mark.django_db(transaction=True)
    def test_an_order_is_closed_whatever_becomes_of_what_follows(
        self, order: Order, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def sell_again(*, order_id: Any) -> None:
            raise DatabaseError("the statement took too long")

        monkeypatch.setattr(lifecycle, "after_closing", [sell_again])
        age(order, closing_at=minutes_ago(5))  # a crash has cut it off
        assert lifecycle.due_for_closing(now=timezone.now(), limit=10) == [order.id]
        assert lifecycle.expire(order_id=order.id) == OrderStatus.CLOSED
        assert shelf() == {"mug": 100, "poster": 10}
        assert "sell_again in on_commit() during transaction (the statement took too long)" in caplog.text

    def test_a_stuck_order_lets_the_others_go_first(self, demo: User, order: Order, channels: Any) -> None:
        checkout.start_payment(order_id=order.id, user_id=demo.pk, channel="wechat")
        age(order, expires_at=minutes_ago(60))
        wechat = channels["wechat"]
        wechat.fails(OutcomeUnknown("timed out"), "close", "query")
        assert [lifecycle.expire(order_id=order.id) for _ in range(2)] == [OrderStatus.PENDING] * 2
        assert [method for method, _ in wechat.calls].count("close") == 1, "which another run may be waiting for"

        younger = placed(demo, mug=1)
        age(younger, expires_at=minutes_ago(1))
        later = timezone.now() + timedelta(minutes=5)
        assert lifecycle.due_for_closing(now=later, limit=1) == [younger.id]
        assert lifecycle.due_for_closing(now=later, limit=2) == [younger.id, order.id]

    def test_one_orders_trouble_stops_neither_its_batch_nor_the_next(
        self,
        demo: User,
        order: Order,
        channels: Any,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(tasks, "BATCH", 2)
        checkout.start_payment(order_id=order.id, user_id=demo.pk, channel="wechat")
        for _ in range(4):
            placed(demo, mug=1)
        Order.objects.update(expires_at=minutes_ago(1))
        channels["wechat"].fails(RuntimeError("a fault of ours"), "close")

        assert tasks.expire_orders(timestamp=0) == 5
        assert [one.pk for one in Order.objects.exclude(status="closed")] == [order.pk]
        assert f"order {order.id.hex} could not be closed" in caplog.text

    def test_the_timer_is_on_the_queue_every_minute(self) -> None:
        task = app.tasks["shop.expire_orders"]
        assert (task.lock, task.queueing_lock) == (None, "shop.expire_orders")  # a killed worker would keep a lock
        assert ("* * * * *", "shop.expire_orders") in {
            (periodic.cron, periodic.task.name) for periodic in app.periodic_registry.periodic_tasks.values()
        }


TIMES = {
    "pending": {"paid_at": None, "closed_at": None},
    "paid": {"paid_at": "2026-01-01T00:00:00Z", "closed_at": None},
    "refunded": {"paid_at": "2026-01-01T00:00:00Z", "closed_at": None},
    "closed": {"paid_at": None, "closed_at": "2026-01-01T00:00:00Z"},
}


class TestDatabase:
    """Writes that PostgreSQL refuses from any writer."""

    @pytest.mark.parametrize("steps", [("pending", "paid", "refunded"), ("closed",)])
    def test_an_order_that_is_to_make_room_for_an_unpaid_one(self, order: Order, steps: tuple[str, ...]) -> None:
        """Its number stays taken: nothing is put in the place of a paid order."""
        OrderItem.objects.filter(order=order).delete()
        for step in steps:
            Order.objects.exclude(status=step).update(status=step, version=F("version") + 1, **TIMES[step])
            for away in ("DELETE FROM shop_order", "UPDATE shop_order SET id = gen_random_uuid()"):
                refused = pytest.raises(IntegrityError, match="stays, under its number")
                with connection.cursor() as cursor, refused, transaction.atomic():
                    cursor.execute(away)
            assert Order.objects.get(pk=order.pk).status == step

    def test_an_order_that_begins_in_the_middle(self, order: Order) -> None:
        begun = {"user_id": order.user_id, "total_minor": 1, "currency": "CNY", "expires_at": order.expires_at}
        for status in ("paid", "refunded", "closed"):
            with pytest.raises(IntegrityError, match="begins as pending"), transaction.atomic():
                Order.objects.create(status=status, **begun, **TIMES[status])

    def test_values_that_cannot_be(self, order: Order, mug: Product) -> None:
        for model, values, constraint in (
            (Product, {"stock": -1}, "product_stock_never_below_zero"),
            (Product, {"price_minor": 0}, "product_price_is_positive"),
            (Product, {"currency": "yuan"}, "value too long|product_currency_is_iso"),
            (Product, {"currency": "cny"}, "product_currency_is_iso"),
            (Order, {"total_minor": 0}, "order_total_is_positive"),
            (Order, {"currency": "c"}, "order_currency_is_iso"),
            (Order, {"paid_at": "2026-01-01T00:00:00Z"}, "order_times_fit_status"),
            (Order, {"status": "lost", "version": 2}, "not a step|order_status_is_known"),
            (Order, {"status": "paid", **TIMES["paid"]}, "new version"),
            (Order, {"version": 0}, "goes back"),
            (OrderItem, {"quantity": 0}, "item_quantity_is_positive"),
            (OrderItem, {"price_minor": 0}, "item_price_is_positive"),
            (OrderItem, {"product": mug}, "item_once_per_order_and_product"),
        ):
            with pytest.raises(DatabaseError, match=constraint), transaction.atomic():
                model.objects.update(**values)


def test_what_the_wallet_shows(demo: User, mug: Product, poster: Product) -> None:
    for name, quantities, description in (
        ("Mug", {"mug": 1}, "Mug"),
        ("Mug", {"mug": 3}, "Mug × 3"),
        ("Mug", {"mug": 3, "poster": 2}, "Mug × 3 and 2 more"),
        ("杯" * 120, {"mug": 90, "poster": 8}, "杯" * 32 + " × 90 and 8 more"),
    ):
        Product.objects.filter(sku="mug").update(name=name)
        order = placed(demo, **quantities)
        shown = checkout.describe(order)
        assert shown == f"{description} · {order.id.hex[-6:].upper()}"
        assert len(shown.encode()) <= 127, "the narrowest channel takes no more"


@pytest.mark.parametrize("subject", ["order:79D332", "order:", f"payment:{'0' * 32}"])
def test_no_outcome_is_known_of_what_is_no_order(db: None, subject: str) -> None:
    assert not checkout.is_known(subject)
