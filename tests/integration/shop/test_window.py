"""The catalogue from memory, in one process: whose it is, when it ends, and what never reads it."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from shop import catalog, orders, stock, window
from shop.errors import ProductNotFound
from shop.local_copy import LocalCopy
from shop.models import Product
from tests.conftest import hanging
from tests.integration.shop.conftest import Caller
from tests.running import until
from tests.threads import at_once

LONG = 600.0


@pytest.fixture
def _kept(settings: Any, transactional_db: None) -> Iterator[None]:
    """The catalogue is in memory, for longer than a test."""
    settings.CATALOGUE_SECONDS = LONG
    window.renew()
    yield
    window.renew()


@pytest.fixture
def shown(_kept: None, demo: User, mug: Product) -> Any:
    """A function: the mug as the demo user sees it. It has been shown before."""
    see = lambda: catalog.get_product(sku="mug", user_id=demo.pk)  # noqa: E731
    see()
    return see


def test_what_is_in_memory_costs_no_sql(shown: Any, demo: User) -> None:
    def costs_nothing() -> bool:  # but where the subscriber has just come back, which means to look again
        with CaptureQueriesContext(connection) as queries:
            assert [one.sku for one in catalog.list_products(user_id=demo.pk)] == ["mug"]
            assert shown().price_minor == 1990
        return len(queries) == 0

    until(costs_nothing)


def test_what_this_process_changes_it_shows_at_once(shown: Any, demo: User, mug: Product) -> None:
    with transaction.atomic():
        order = orders.create_order(user_id=demo.pk, quantities={"mug": 3})
    assert shown().stock == 97
    with transaction.atomic():
        stock.release(quantities={mug.pk: 3})
    assert shown().stock == 100
    assert catalog.edit_product(product_id=mug.pk, before={"name": "Mug"}, after={"name": "Cup"})
    assert shown().name == "Cup"
    assert order.items.get().name == "Mug"


def test_a_like_is_ones_own(shown: Any, caller: Caller, stranger: Caller) -> None:
    for see in (caller, stranger):
        assert see.get("products/mug").json()["liked"] is False
    caller.http.put("/api/v1/products/mug/like")
    for _ in range(2):
        assert (caller.get("products/mug").json()["liked"], caller.get("products").json()[0]["likes"]) == (True, 1)
        assert stranger.get("products").json()[0]["liked"] is False
        assert catalog.get_product(sku="mug", user_id=None).liked is False
    caller.http.delete("/api/v1/products/mug/like")
    assert caller.get("products").json()[0]["liked"] is False


def test_a_new_product_is_there_before_the_list_shows_it(shown: Any, caller: Caller, poster: Product) -> None:
    assert caller.get("products/poster").json()["stock"] == 10
    assert catalog.get_product(sku="poster", user_id=None).name == "Poster"
    with pytest.raises(ProductNotFound):
        catalog.get_product(sku="nothing", user_id=None)


def test_ordering_does_not_read_it(shown: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    old = window._read()
    monkeypatch.setattr(window._copy, "_read", lambda: old)
    Product.objects.update(price_minor=1, stock=1)
    assert (shown().price_minor, shown().stock) == (1990, 100)
    assert caller.order("mug", 2, key="k").json()["code"] == "out_of_stock"
    assert caller.order("mug", 1, key="l").json()["total"]["amount_minor"] == 1


def test_what_is_not_committed_is_not_kept(shown: Any, demo: User) -> None:
    with transaction.atomic():
        orders.create_order(user_id=demo.pk, quantities={"mug": 3})
        assert shown().stock == 97
        transaction.set_rollback(True)
    assert shown().stock == 100


def test_with_redis_hanging_or_switched_off(
    shown: Any, mug: Product, settings: Any, redis_server: redis.Redis
) -> None:
    with hanging(redis_server):
        assert catalog.edit_product(product_id=mug.pk, before={"name": "Mug"}, after={"name": "Cup"})
        assert shown().name == "Cup"
    settings.IDEMPOTENCY = {"REDIS_ALIAS": None}
    assert catalog.edit_product(product_id=mug.pk, before={"name": "Cup"}, after={"name": "Jar"})
    assert shown().name == "Jar"


@pytest.mark.usefixtures("transactional_db")  # which threads have a connection of
class TestLocalCopy:
    def test_many_threads_read_once(self) -> None:
        reads: list[int] = []
        copy = LocalCopy("test", read=lambda: reads.append(1) or len(reads), seconds=lambda: LONG)  # type: ignore[func-returns-value]
        assert at_once(*[copy.get] * 8) == [1] * 8

    def test_a_change_during_the_reading_is_not_missed(self) -> None:
        values = ["before"]
        reading, go_on = threading.Event(), threading.Event()

        def read() -> str:
            value = values[0]
            reading.set()
            assert go_on.wait(30)
            return value

        copy = LocalCopy("test", read=read, seconds=lambda: LONG)

        def change() -> str:
            assert reading.wait(30)
            values[0] = "after"
            copy.forget()
            go_on.set()
            return ""

        assert at_once(copy.get, change) == ["before", ""]
        assert copy.get() == "after"

    def test_it_ends(self) -> None:
        values = iter([1, 2])
        copy = LocalCopy("test", read=lambda: next(values), seconds=lambda: 0.0)
        assert [copy.get(), copy.get()] == [1, 2]

    def test_who_cannot_read_keeps_nothing(self) -> None:
        values = iter([ZeroDivisionError(), 1])

        def read() -> int:
            value = next(values)
            if isinstance(value, Exception):
                raise value
            return value

        copy = LocalCopy("test", read=read, seconds=lambda: LONG)
        with pytest.raises(ZeroDivisionError):
            copy.get()
        assert copy.get() == 1
