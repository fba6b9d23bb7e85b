"""Flash sales at the same instant: threads on a barrier, Redis flushed, kill -9. See test_three_processes.py too."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
import redis
from django.contrib.auth.models import User
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from shop import sales as flashsale
from shop import tasks
from shop.models import FlashSale, FlashSalePurchase, Order, Product
from shop.orders import lifecycle
from tests.conftest import a_folder_of_its_own
from tests.integration.shop.conftest import Caller
from tests.integration.shop.settling import keyed
from tests.system.concurrency.shop.crowd import Crowd, open_sale
from tests.system.crash.conftest import MortalShop, run_shop
from tests.threads import at_once

UNITS, BUYERS = 10, 30
PATH = "flash-sales/sneaker/orders"


@pytest.fixture
def sale(sneaker: Product) -> FlashSale:
    now = timezone.now()
    return FlashSale.objects.create(
        product=sneaker, units=UNITS, starts_at=now - timedelta(minutes=1), ends_at=now + timedelta(hours=1)
    )


def callers(count: int) -> list[Caller]:
    return [Caller(User.objects.create_user(f"buyer{number}")) for number in range(count)]


def sold_exactly(units: int, sale: FlashSale) -> None:
    sale.refresh_from_db()
    standing = FlashSalePurchase.objects.filter(sale=sale, returned_at__isnull=True)
    assert sale.sold == standing.count() == units
    assert standing.values("buyer").distinct().count() == units
    assert Order.objects.exclude(status="closed").count() == units
    assert Product.objects.get(pk=sale.product_id).stock == 100 - units


def refusals(answers: list[Any]) -> Counter[str]:
    return Counter(answer.json()["code"] for answer in answers if answer.status_code == 409)


@pytest.mark.parametrize("redis_there", [True, False], ids=["Redis", "no Redis"])
def test_thirty_buyers_for_ten_units(sale: FlashSale, redis_there: bool) -> None:
    crowd = callers(BUYERS)
    with override_settings(IDEMPOTENCY=keyed(redis_there)):
        answers = at_once(*[lambda c=caller: c.post(PATH, key="k") for caller in crowd])

    assert Counter(answer.status_code for answer in answers) == {201: UNITS, 409: BUYERS - UNITS}
    assert refusals(answers) == {"sold_out": BUYERS - UNITS}
    sold_exactly(UNITS, sale)
    places = list(FlashSalePurchase.objects.order_by("place").values_list("place", flat=True))
    # every arrival is numbered, the refused ones too: the first ten have it
    assert places == (list(range(1, UNITS + 1)) if redis_there else [None] * UNITS)


@pytest.mark.parametrize("units", [UNITS, 1])
@pytest.mark.parametrize("redis_there", [True, False], ids=["Redis", "no Redis"])
def test_one_buyer_with_eight_keys(demo: User, sale: FlashSale, redis_there: bool, units: int) -> None:
    FlashSale.objects.update(units=units)
    with override_settings(IDEMPOTENCY=keyed(redis_there)):
        answers = at_once(*[lambda n=n: Caller(demo).post(PATH, key=f"k{n}") for n in range(8)])

    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 7}
    assert refusals(answers) == {"already_bought": 7}
    sold_exactly(1, sale)


def test_redis_is_flushed_all_the_while(sale: FlashSale, redis_server: redis.Redis) -> None:
    crowd = callers(BUYERS)
    over = threading.Event()

    def flush() -> None:
        while not over.wait(0.002):
            redis_server.flushall()

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        answers = at_once(*[lambda c=caller: c.post(PATH, key="k") for caller in crowd])
    finally:
        over.set()
        flusher.join()

    # a forgotten marker costs nothing, a forgotten admission lets more through to the database, which refuses
    assert Counter(answer.status_code for answer in answers) == {201: UNITS, 409: BUYERS - UNITS}
    sold_exactly(UNITS, sale)
    tasks.sweep_flash_sales(timestamp=0)
    late = Caller(User.objects.create_user("late"))
    assert late.post(PATH, key="k").json()["code"] == "sold_out"


def test_buying_against_closing(sale: FlashSale) -> None:
    """Units come back while others arrive: no deadlock, no unit lost, none sold twice."""
    crowd = callers(BUYERS)
    early = list(User.objects.order_by("pk")[:UNITS])
    made = []
    for user in early:
        with transaction.atomic():
            made.append(flashsale.buy(sku="sneaker", user_id=user.pk))

    def close(order: Order) -> None:
        for _ in range(2):
            lifecycle.cancel(order_id=order.pk, user_id=order.user_id)
            flashsale.returned(order_id=order.pk)

    answers = at_once(
        *[lambda o=order: close(o) for order in made],
        *[lambda c=caller: c.post(PATH, key="k") for caller in crowd[UNITS:]],
        *[lambda c=caller: c.post(PATH, key="again") for caller in crowd[:UNITS]],
    )

    bought = [answer for answer in answers if answer is not None and answer.status_code == 201]
    assert len(bought) <= UNITS
    sold_exactly(len(bought), sale)
    tasks.sweep_flash_sales(timestamp=0)
    rest = [caller.post(PATH, key="rest") for caller in crowd]
    assert Counter(answer.status_code for answer in rest)[201] == UNITS - len(bought)
    sold_exactly(UNITS, sale)


@pytest.fixture(scope="module")
def mortal() -> Iterator[MortalShop]:
    with a_folder_of_its_own() as folder:
        yield from run_shop(folder)


def buy_and_die(mortal: MortalShop, crowd: Crowd, token: str, *, key: str, at: int) -> httpx.Response | None:
    try:
        return crowd.buy(str(mortal.http.base_url), token, key=key, **{"X-Fault-At": str(at)})
    except httpx.TransportError:
        return None


def test_killed_at_every_boundary(mortal: MortalShop) -> None:
    """A buyer whose process died gets his order with the same key, or his unit goes to somebody else."""
    url = str(mortal.http.base_url)
    database: psycopg.Connection = mortal.database
    open_sale(database, sku="measured", units=2)
    with Crowd(database, sku="measured", count=2) as crowd:
        for token in crowd.tokens:  # the second one, when the sale is known to Redis
            boundaries = int(crowd.buy(url, token, key=uuid4().hex).headers["X-Fault-Count"])
    assert boundaries >= 9

    sale = open_sale(database, sku="deadly", units=boundaries)
    with Crowd(database, sku="deadly", count=3 * boundaries) as crowd:
        keys = {}
        for at, token in enumerate(crowd.tokens[:boundaries], 1):
            keys[token] = uuid4().hex
            assert buy_and_die(mortal, crowd, token, key=keys[token], at=at) is None
        mortal.redis.delete(*mortal.redis.keys("*:key:*"))  # what the markers' time does: three seconds
        first_half = crowd.tokens[:boundaries:2]
        for token in first_half:
            retried, again = (crowd.buy(url, token, key=keys[token]) for _ in range(2))
            assert (retried.status_code, again.content) == (201, retried.content)
        # those who do not come back lose their places when the leases are over
        crowd.sell_the_rest([url], tokens=crowd.tokens[boundaries:])
        crowd.sold_exactly(sale, boundaries)
