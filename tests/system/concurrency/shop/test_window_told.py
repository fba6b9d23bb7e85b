"""A change in one process is seen in another at once, or when its copy ends if it was not told."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connection, transaction

from shop import stock
from shop.catalog import products as catalog
from shop.models import Product
from shop.orders import placing as orders
from tests.running import until
from tests.system.concurrency.shop.reader import Reader

LONG = 600.0  # longer than any test: what is seen was told


@pytest.fixture(scope="module")
def process(django_db_setup: None) -> Iterator[Reader]:
    started = Reader(database=connection.settings_dict["NAME"])
    yield started
    started.stop()


@pytest.fixture
def reader(process: Reader, mug: Product) -> Reader:
    """With the mug in its memory, and listening."""
    process.begin(seconds=LONG)
    assert process.read("mug")["stock"] == 100
    return process


def rename(mug: Product, before: str, after: str) -> None:
    assert catalog.edit_product(product_id=mug.pk, before={"name": before}, after={"name": after})


def test_what_changes_is_told(reader: Reader, mug: Product) -> None:
    def is_old() -> bool:  # but where its subscriber has just come back, which means to look again
        Product.objects.update(description=(newest := uuid4().hex))
        return bool(reader.read("mug")["description"] != newest)

    until(is_old)
    assert catalog.edit_product(product_id=mug.pk, before={"price_minor": 1990}, after={"price_minor": 2500})
    until(lambda: reader.read("mug")["price_minor"] == 2500)
    stock.adjust(product_id=mug.pk, difference=7)
    until(lambda: reader.read("mug")["stock"] == 107)
    stock.arrange(product_id=mug.pk, strategy="segmented", segments=3)
    stock.adjust(product_id=mug.pk, difference=-7)
    until(lambda: reader.read("mug")["stock"] == 100)


def test_an_order_is_seen_when_the_copy_ends(reader: Reader, mug: Product, demo: User) -> None:
    with transaction.atomic():
        orders.create_order(user_id=demo.pk, quantities={"mug": 3})
    catalog.like(sku="mug", user_id=demo.pk)
    told = reader.answer("mug")
    assert (told["stock"], told["like_count"]) == (97, 1), "the API is not late"
    reader.begin(seconds=0.05)
    until(lambda: reader.read("mug")["stock"] == 97)
    Product.objects.update(name="Nobody is told")
    until(lambda: reader.read("mug")["name"] == "Nobody is told")


def test_a_listener_whose_connection_breaks_looks_again(
    reader: Reader, mug: Product, redis_server: redis.Redis
) -> None:
    assert redis_server.client_kill_filter(_type="pubsub") > 0
    rename(mug, "Mug", "Cup")
    until(lambda: reader.read("mug")["name"] == "Cup")


def test_a_forked_child_listens_for_itself_and_its_parent_goes_on(reader: Reader, mug: Product) -> None:
    reader.fork()
    assert reader.read("mug")["name"] == "Mug"
    rename(mug, "Mug", "Cup")
    until(lambda: reader.read("mug")["name"] == "Cup")
    reader.end_fork()
    rename(mug, "Cup", "Jar")
    until(lambda: reader.read("mug")["name"] == "Jar")
