"""The catalogue's page from memory: when it ends, and what never reads it."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from idempotency.cachedmap import CachedMap, Entry
from shop import stock
from shop.catalog import cache
from shop.catalog import products as catalog
from shop.models import Like, Product
from shop.orders import placing as orders
from tests.integration.shop.conftest import Caller, placed
from tests.running import until

LONG = 600.0


@pytest.fixture
def _kept(settings: Any, transactional_db: None) -> Iterator[None]:
    """The catalogue is in memory, for longer than a test."""
    settings.CATALOGUE_SECONDS = LONG
    cache.forget_copy()
    yield
    cache.forget_copy()


@pytest.fixture
def shown(_kept: None, mug: Product) -> Any:
    """A function: the mug as it stands in the window. It has been shown before."""
    see = lambda: next(one for one in cache._current().listings if one.sku == "mug")  # noqa: E731
    see()
    return see


def test_what_is_in_memory_costs_no_sql(shown: Any, client: Client) -> None:
    def costs_nothing() -> bool:  # but where the subscriber has just come back, which means to look again
        with CaptureQueriesContext(connection) as queries:
            assert "¥19.90" in client.get("/").text
        return len(queries) == 0

    until(costs_nothing)


def test_what_this_process_changes_it_shows_at_once(shown: Any, demo: User, mug: Product) -> None:
    order = placed(demo, mug=3)
    assert shown().stock == 97
    with transaction.atomic():
        stock.release(quantities={mug.pk: 3})
    assert shown().stock == 100
    assert catalog.edit_product(product_id=mug.pk, before={"name": "Mug"}, after={"name": "Cup"})
    assert shown().name == "Cup"
    assert order.items.get().name == "Mug"


@pytest.fixture
def elsewhere(_kept: None, mug: Product) -> Iterator[Any]:
    """A function: the mug as another process has it, which is a map of the same name."""
    window = CachedMap("catalogue", read=lambda _: Entry(cache._read(), ttl_seconds=LONG), stored=False)
    see = lambda: next(one for one in window.get("").listings if one.sku == "mug")  # noqa: E731
    see()
    yield see
    window.close()


def test_other_processes_hear_of_a_change(elsewhere: Any, mug: Product) -> None:
    def is_old() -> bool:  # but where its subscriber has just begun, which means to look again
        Product.objects.update(description=(newest := uuid4().hex))
        return bool(elsewhere().description != newest)

    until(is_old)
    assert catalog.edit_product(product_id=mug.pk, before={"price_minor": 1990}, after={"price_minor": 2500})
    until(lambda: elsewhere().price_minor == 2500)
    stock.adjust(product_id=mug.pk, difference=7)
    until(lambda: elsewhere().stock == 107)
    stock.arrange(product_id=mug.pk, strategy="segmented", segments=3)
    stock.adjust(product_id=mug.pk, difference=-7)
    until(lambda: elsewhere().stock == 100)


def test_a_change_without_a_message_is_seen_when_the_copy_ends(shown: Any, settings: Any) -> None:
    settings.CATALOGUE_SECONDS = 0.05
    cache.forget_copy()
    shown()
    Product.objects.update(name="Nobody hears of it")
    until(lambda: shown().name == "Nobody hears of it")


def test_the_api_and_the_page_of_a_product_never_read_it(
    shown: Any, caller: Caller, stranger: Caller, demo: User, mug: Product, poster: Product
) -> None:
    """Any process answers at once what another has acknowledged (docs/contract.md)."""

    def shows_what_was() -> bool:  # but where the subscriber has just come back, which means to look again
        Product.objects.filter(pk=mug.pk).update(stock=100)
        cache.forget_copy()
        shown()
        Product.objects.filter(pk=mug.pk).update(stock=7, price_minor=2500)
        return bool(shown().stock == 100)

    until(shows_what_was)
    Like.objects.create(user=demo, product=mug)
    for said in (caller.get("products").json()[0], caller.get("products/mug").json()):
        assert (said["stock"], said["likes"], said["liked"], said["price"]["amount_minor"]) == (7, 1, True, 2500)
    assert (said := stranger.get("products/mug").json())["likes"] == 1
    assert said["liked"] is False
    assert [one["sku"] for one in stranger.get("products").json()] == ["mug", "poster"]
    assert b"Only 7 left" in Client().get("/products/mug").content


def test_a_page_from_memory_is_in_its_readers_language_and_escaped(
    shown: Any, client: Client, mug: Product
) -> None:
    assert catalog.edit_product(product_id=mug.pk, before={"name": "Mug"}, after={"name": "<b>Cup"})
    for tongue, words in [("en", "In stock"), ("zh-hans", "有货")] * 2:
        page = client.get("/", headers={"Accept-Language": tongue}).text
        assert (words in page, "&lt;b&gt;Cup" in page, "<b>" in page) == (True, True, False)


def test_what_the_api_reads_is_one_statement(mug: Product, demo: User, django_assert_num_queries: Any) -> None:
    for user_id in (None, demo.pk):
        with django_assert_num_queries(1):
            catalog.list_products(user_id=user_id)
        with django_assert_num_queries(1):
            catalog.get_product(sku="mug", user_id=user_id)


def test_ordering_does_not_read_it(shown: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    old = cache._read()
    monkeypatch.setattr(cache, "_read", lambda: old)
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
