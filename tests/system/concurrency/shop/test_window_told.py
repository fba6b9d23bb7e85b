"""A change in one process is seen in another at once, or when its copy ends if it was not told."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from shop import stock
from shop.catalog import products as catalog
from shop.models import Product
from shop.orders import placing as orders
from tests.processes import on_the_tests_database
from tests.running import until
from tests.sandbox import ROOT

LONG = 600.0  # longer than any test: what is seen was told

# shows the catalogue's page from its memory, as a web process does; a question and its answer a line
READER = """
import json, sys
from dataclasses import asdict
import django
django.setup()
from django.conf import settings
from django.db import connection
from shop.catalog import cache, products

for question in map(json.loads, iter(sys.stdin.readline, "")):
    if seconds := question.get("copies live"):
        settings.CATALOGUE_SECONDS = seconds
        cache.forget_copy()
    answer = {
        "page": next(asdict(one) for one in cache._current().listings if one.sku == "mug"),
        "api": asdict(products.get_product(sku="mug", user_id=None)),
    }
    connection.close()
    print(json.dumps(answer), flush=True)
"""


class Reader:
    """Another process."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", READER]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.process = subprocess.Popen(command, cwd=ROOT, env=on_the_tests_database(), **pipes)

    def mug(self, where: str = "page", **question: Any) -> Any:
        """As it shows the product on the catalogue's page, or its API answers it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        return json.loads(self.process.stdout.readline())[where]


@pytest.fixture
def reader(mug: Product) -> Iterator[Reader]:
    """With the mug in its memory, and listening."""
    started = Reader()
    assert started.mug(**{"copies live": LONG})["stock"] == 100
    yield started
    started.process.communicate()
    assert started.process.returncode == 0


def test_what_changes_is_told_and_an_order_is_seen_when_the_copy_ends(
    reader: Reader, mug: Product, demo: User
) -> None:
    def is_old() -> bool:  # but where its subscriber has just begun, which means to look again
        Product.objects.update(description=(newest := uuid4().hex))
        return bool(reader.mug()["description"] != newest)

    until(is_old)
    assert catalog.edit_product(product_id=mug.pk, before={"price_minor": 1990}, after={"price_minor": 2500})
    until(lambda: reader.mug()["price_minor"] == 2500)
    stock.adjust(product_id=mug.pk, difference=7)
    until(lambda: reader.mug()["stock"] == 107)
    stock.arrange(product_id=mug.pk, strategy="segmented", segments=3)
    stock.adjust(product_id=mug.pk, difference=-7)
    until(lambda: reader.mug()["stock"] == 100)

    with transaction.atomic():
        orders.create_order(user_id=demo.pk, quantities={"mug": 3})
    catalog.like(sku="mug", user_id=demo.pk)
    told = reader.mug("api")
    assert (told["stock"], told["like_count"]) == (97, 1), "the API is not late"
    reader.mug(**{"copies live": 0.05})
    until(lambda: reader.mug()["stock"] == 97)
    Product.objects.update(name="Nobody is told")
    until(lambda: reader.mug()["name"] == "Nobody is told")
