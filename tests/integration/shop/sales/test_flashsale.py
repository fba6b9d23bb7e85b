"""Flash sales: one unit a buyer, no unit too many, none lost, whatever Redis says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from redis.cluster import key_slot

from idempotency.redis import fastpath
from shop import sales as flashsale
from shop import tasks
from shop.errors import AlreadyBought, SoldOut
from shop.models import FlashSale, FlashSalePurchase, Order, Product
from shop.orders import lifecycle
from shop.sales import gate
from tests.integration.shop.conftest import Caller
from tests.integration.shop.settling import keyed, number_of, on_payment, settle
from tests.system.stores.conftest import use
from tests.system.stores.stores import Store
from tests.threads import at_once

pytestmark = pytest.mark.usefixtures("sale")

UNITS = 3
PATH = "flash-sales/sneaker/orders"
ADD = "/admin/shop/flashsale/add/"
SALE, ADMITTED, BUYERS, PLACES = range(4)


def key(part: int) -> str:
    return gate._keys("sneaker")[part]


@pytest.fixture
def sale(sneaker: Product) -> FlashSale:
    now = timezone.now()
    return flashsale.announce(
        product_id=sneaker.pk,
        units=UNITS,
        starts_at=now - timedelta(minutes=1),
        ends_at=now + timedelta(hours=1),
    )


@pytest.fixture
def buyers(transactional_db: None) -> list[Caller]:
    return [Caller(User.objects.create_user(f"buyer{number}")) for number in range(UNITS + 3)]


@pytest.fixture
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    with override_settings(IDEMPOTENCY=keyed(request.param == "Redis")):
        yield


EITHER = pytest.mark.parametrize("either", ["Redis", "no Redis"], indirect=True)


def codes(answers: list[Any]) -> list[str]:
    return [answer.json().get("code", "") for answer in answers]


def buy_directly(user: User) -> Order:
    with transaction.atomic():
        return flashsale.buy(sku="sneaker", user_id=user.pk)


def state(sale: FlashSale) -> tuple[int, int, int]:
    """(sold, standing purchases, stock): all three must agree."""
    sale.refresh_from_db()
    standing = FlashSalePurchase.objects.filter(sale=sale, returned_at__isnull=True).count()
    return sale.sold, standing, Product.objects.get(pk=sale.product_id).stock


class TestBuying:
    """What a buyer hears, with Redis in front and without."""

    @EITHER
    def test_the_unit_becomes_an_order(self, caller: Caller, sale: FlashSale, either: None) -> None:
        answer = caller.post(PATH, key="k")

        order = answer.json()
        assert (answer.status_code, order["status"], order["payment"]) == (201, "pending", None)
        assert order["items"] == [
            {"sku": "sneaker", "quantity": 1, "price": {"amount_minor": 29900, "currency": "CNY"}}
        ]
        assert answer["Location"] == f"/api/v1/orders/{order['id']}"
        assert answer["ETag"] == '"1"'
        assert caller.get(f"orders/{order['id']}").json() == order
        assert state(sale) == (1, 1, 99)
        again = caller.post(PATH, key="k")
        assert (again.content, again["Idempotent-Replayed"]) == (answer.content, "true")
        assert state(sale) == (1, 1, 99)
        refusals = [caller.post(PATH, key="k2") for _ in range(2)]
        assert [(refusal.status_code, *codes([refusal])) for refusal in refusals] == [(409, "already_bought")] * 2
        assert refusals[0]["Content-Type"] == "application/problem+json"
        assert refusals[1]["Idempotent-Replayed"] == "true"
        assert state(sale) == (1, 1, 99)

    @EITHER
    def test_a_shelf_with_fewer_units_is_sold_out_earlier(
        self, buyers: list[Caller], sale: FlashSale, either: None
    ) -> None:
        Product.objects.update(stock=1)
        assert [buyer.post(PATH, key="k").status_code for buyer in buyers[:2]] == [201, 409]
        assert state(sale) == (1, 1, 0)

    @EITHER
    def test_outside_of_its_time_and_where_there_is_none(
        self, caller: Caller, sale: FlashSale, mug: Product, either: None
    ) -> None:
        now = timezone.now()
        for starts, ends in ((60, 120), (-120, -60)):
            times = {"starts_at": now + timedelta(seconds=starts), "ends_at": now + timedelta(seconds=ends)}
            FlashSale.objects.update(**times)
            flashsale.forget()
            answer = caller.post(PATH, key=f"k{starts}")
            assert (answer.status_code, answer.json()["code"]) == (409, "flash_sale_not_running")
        assert state(sale) == (0, 0, 100)
        for sku in ("mug", "nothing"):
            answer = caller.post(f"flash-sales/{sku}/orders", key=sku)
            assert (answer.status_code, answer.json()["code"]) == (404, "flash_sale_not_found")

    @EITHER
    def test_a_closed_order_gives_its_unit_back_once(
        self, buyers: list[Caller], sale: FlashSale, either: None
    ) -> None:
        """The buyer and others may buy again; a refusal stays one under its own key."""
        order = buyers[0].post(PATH, key="k").json()
        for buyer in buyers[1:UNITS]:
            buyer.post(PATH, key="k")
        late = buyers[UNITS].post(PATH, key="late")
        for key in ("c1", "c2"):
            assert buyers[0].post(f"orders/{order['id']}/cancel", key=key).json()["status"] == "closed"
        assert state(sale) == (UNITS - 1, UNITS - 1, 100 - UNITS + 1)

        assert buyers[UNITS].post(PATH, key="late").content == late.content
        assert buyers[0].post(PATH, key="again").status_code == 201
        assert buyers[UNITS].post(PATH, key="late2").json()["code"] == "sold_out"
        assert state(sale) == (UNITS, UNITS, 100 - UNITS)
        assert FlashSalePurchase.objects.count() == UNITS + 1

    def test_a_refund_leaves_the_unit_sold(self, caller: Caller, sale: FlashSale, channels: Any) -> None:
        order_id = caller.post(PATH, key="k").json()["id"]
        assert caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay").status_code == 201
        settle(channels["wechat"].pay(number_of(order_id, "wechat")))
        with transaction.atomic():
            assert on_payment(order_id=Order.objects.get().pk, event="refunded")
        assert state(sale) == (1, 1, 99)
        assert caller.post(PATH, key="k2").json()["code"] == "already_bought"


class TestTheDatabase:
    """Writes that it refuses from any writer."""

    def test_a_sale_that_cannot_be(self) -> None:
        for values, constraint in (
            ({"sold": UNITS + 1}, "flash_sale_sold_within_units"),
            ({"sold": -1}, "flash_sale_sold_within_units|sold_check"),
            ({"ends_at": F("starts_at")}, "flash_sale_ends_after_its_start"),
        ):
            with pytest.raises(IntegrityError, match=constraint):
                FlashSale.objects.update(**values)

    def test_two_standing_purchases_of_a_buyer(self, demo: User) -> None:
        first, second = buy_directly(demo), None
        lifecycle.cancel(order_id=first.pk, user_id=demo.pk)
        flashsale.returned(order_id=first.pk)
        second = buy_directly(demo)
        assert FlashSalePurchase.objects.get(order=second).returned_at is None
        with pytest.raises(IntegrityError, match="flash_sale_once_a_buyer"):
            FlashSalePurchase.objects.update(returned_at=None)


def test_a_late_request_writes_its_ledger_row_alone(buyers: list[Caller]) -> None:
    for buyer in buyers[:UNITS]:
        buyer.post(PATH, key="k")
    connection.close()  # a session that has kept no plan yet
    with CaptureQueriesContext(connection) as queries:
        assert codes([buyers[UNITS].post(PATH, key="k")]) == ["sold_out"]
    statements = [query["sql"] for query in queries.captured_queries]
    assert not [sql for sql in statements if "shop_" in sql]
    # Django names BEGIN and ROLLBACK, and neither is sent: no statement comes between them
    sent = [word for sql in statements if (word := sql.split()[0]) not in {"BEGIN", "ROLLBACK"}]
    assert sent == ["SELECT", "INSERT"]  # the token's first


class TestAdmissions:
    """An admission that becomes no order goes back."""

    def test_a_rolled_back_purchase_is_its_buyers_again(self, demo: User, sale: FlashSale) -> None:
        FlashSale.objects.update(units=1)
        with transaction.atomic():
            flashsale.buy(sku="sneaker", user_id=demo.pk)
            transaction.set_rollback(True)
        assert state(sale) == (0, 0, 100)
        assert buy_directly(demo).status == "pending"
        assert state(sale) == (1, 1, 99)

    def test_an_error_gives_the_place_to_the_next_one_at_once(
        self, buyers: list[Caller], monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis
    ) -> None:
        FlashSale.objects.update(units=1)
        with monkeypatch.context() as broken, override_settings(ORDER_TTL_SECONDS="no number"):
            broken.setattr(buyers[0].http, "raise_request_exception", False)
            assert buyers[0].post(PATH, key="k").status_code == 500
        assert redis_server.zcard(key(ADMITTED)) == redis_server.hlen(key(PLACES)) == 0
        assert buyers[1].post(PATH, key="k").status_code == 201


class TestRedisIsNotTheJudge:
    """Flushed, foreign, generous or stingy."""

    def test_it_gives_more_than_there_is(
        self, buyers: list[Caller], sale: FlashSale, redis_server: redis.Redis
    ) -> None:
        for buyer in buyers[:UNITS]:
            buyer.post(PATH, key="k")
        redis_server.hset(key(SALE), "units", 1000)
        redis_server.delete(key(BUYERS))
        assert codes([buyers[UNITS].post(PATH, key="k")]) == ["sold_out"]
        assert codes([buyers[0].post(PATH, key="k2")]) == ["already_bought"]
        assert state(sale) == (UNITS, UNITS, 100 - UNITS)
        assert codes([buyers[UNITS + 1].post(PATH, key="k")]) == ["sold_out"]
        assert redis_server.hget(key(SALE), "units") == str(UNITS).encode()  # read from the database again
        assert redis_server.scard(key(BUYERS)) == UNITS

    def test_it_withholds_what_is_there_until_the_sweep(
        self, buyers: list[Caller], sale: FlashSale, redis_server: redis.Redis
    ) -> None:
        for hours in range(1, 21):  # those that end sooner must not keep it waiting
            began, ends = sale.starts_at - timedelta(hours=hours), sale.ends_at - timedelta(seconds=1)
            flashsale.announce(product_id=sale.product_id, units=1, starts_at=began, ends_at=ends)
        buyers[0].post(PATH, key="k")
        redis_server.sadd(key(BUYERS), 10**9, 10**9 + 1)
        assert codes([buyers[1].post(PATH, key="k")]) == ["sold_out"]
        assert tasks.sweep_flash_sales(timestamp=0) == 2
        assert tasks.sweep_flash_sales(timestamp=0) == 0
        assert [buyer.post(PATH, key="again").status_code for buyer in buyers[1:]] == [201, 201, 409, 409, 409]

    def test_a_purchase_while_the_sweep_runs_is_not_forgotten(self, buyers: list[Caller], demo: User) -> None:
        """Else Redis admits one buyer too many, who may take the unit of one who came earlier."""
        FlashSale.objects.update(units=2)
        assert buyers[0].post(PATH, key="k").status_code == 201
        in_time = [demo]

        def buy_after_the_read(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            found = execute(sql, params, many, context)
            if in_time and sql.startswith('SELECT "shop_flashsalepurchase"'):
                at_once(lambda: buy_directly(in_time.pop()))
            return found

        with connection.execute_wrapper(buy_after_the_read):
            tasks.sweep_flash_sales(timestamp=0)
        assert FlashSalePurchase.objects.count() == 2
        assert flashsale.look(sku="sneaker", user_id=demo.pk).bought
        assert flashsale.look(sku="sneaker", user_id=None).left == 0
        with pytest.raises(SoldOut):
            gate.admit(sku="sneaker", user_id=User.objects.get(username="buyer1").pk)

    def test_a_later_sale_that_begins_while_this_one_runs(
        self, caller: Caller, sale: FlashSale, redis_server: redis.Redis
    ) -> None:
        assert caller.post(PATH, key="k").status_code == 201
        now, ends = timezone.now(), redis_server.hget(key(SALE), "ends")
        announce = partial(
            flashsale.announce, product_id=sale.product_id, units=7, ends_at=now + timedelta(days=1)
        )
        announce(starts_at=now + timedelta(hours=2))
        announce(starts_at=sale.starts_at - timedelta(hours=1))
        assert redis_server.hget(key(SALE), "ends") == ends  # neither is its business
        soon = announce(starts_at=now + timedelta(minutes=30)).starts_at
        assert redis_server.hget(key(SALE), "ends") == str(round(soon.timestamp() * 1000)).encode()
        assert codes([caller.post(PATH, key="k2")]) == ["already_bought"]

        at_once = announce(starts_at=timezone.now())
        assert flashsale.look(sku="sneaker", user_id=None).units == 7
        assert caller.post(PATH, key="k3").status_code == 201
        assert (at_once.purchases.count(), sale.purchases.count()) == (1, 1)
        assert tasks.sweep_flash_sales(timestamp=0) == 0

    @pytest.mark.parametrize("part", [SALE, ADMITTED, BUYERS])
    def test_something_else_stands_there(self, buyers: list[Caller], redis_server: redis.Redis, part: int) -> None:
        name = key(part)
        assert buyers[0].post(PATH, key="k").status_code == 201
        redis_server.delete(name)
        redis_server.lpush(name, "not ours")
        answers = []
        for buyer in buyers[1:]:
            fastpath.breaker.succeeded()
            answers.append(buyer.post(PATH, key="k"))
        assert [answer.status_code for answer in answers] == [201, 201, 409, 409, 409]
        fastpath.breaker.succeeded()
        tasks.sweep_flash_sales(timestamp=0)
        assert redis_server.type(name) in {b"none", b"hash", b"set", b"zset"}
        assert redis_server.scard(key(BUYERS)) == UNITS


class TestLooking:
    """What those who wait see."""

    def test_without_sql_while_it_runs(self, buyers: list[Caller], django_assert_num_queries: Any) -> None:
        users = list(User.objects.order_by("pk"))
        for user in users[:UNITS]:
            buy_directly(user)
        late = users[UNITS]
        numbers = []
        for _ in range(2):  # he comes again, and is no second arrival
            with pytest.raises(SoldOut), transaction.atomic():
                flashsale.buy(sku="sneaker", user_id=late.pk)
            with django_assert_num_queries(0):
                found = flashsale.look(sku="sneaker", user_id=late.pk)
            numbers.append((found.place, found.arrivals, found.left, found.units, found.bought))
        assert numbers == [(UNITS + 1, UNITS + 1, 0, UNITS, False)] * 2
        with django_assert_num_queries(0), pytest.raises(AlreadyBought):
            flashsale.buy(sku="sneaker", user_id=users[0].pk)
        assert flashsale.look(sku="sneaker", user_id=users[0].pk).bought
        assert flashsale.look(sku="sneaker", user_id=None).place is None

        returned = Order.objects.get(user=users[0])
        # heard by Redis with the commit, without a sweep
        lifecycle.cancel(order_id=returned.pk, user_id=users[0].pk)
        assert flashsale.look(sku="sneaker", user_id=late.pk).left == 1
        assert FlashSalePurchase.objects.get(order=buy_directly(late)).place == UNITS + 1

    def test_numbers_kept_of_those_who_came_too_late_are_bounded(
        self, buyers: list[Caller], monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis
    ) -> None:
        FlashSale.objects.update(units=1)
        monkeypatch.setattr(gate, "PLACES_MAX", 2)
        for buyer in buyers:
            buyer.post(PATH, key="k")
        assert redis_server.hlen(key(PLACES)) == 2
        assert redis_server.pttl(key(PLACES)) > 0


def test_its_keys_are_in_one_slot_of_a_cluster(buyers: list[Caller], stores: Callable[[str], Store]) -> None:
    with contextmanager(use)(stores("Redis Cluster")):
        answers = [buyer.post(PATH, key="k") for buyer in buyers]
        answers.append(buyers[0].post(PATH, key="k2"))
        buyers[0].post(f"orders/{answers[0].json()['id']}/cancel", key="c")
        answers.append(buyers[0].post(PATH, key="k3"))
    fastpath.breaker.succeeded()
    assert [answer.status_code for answer in answers] == [201] * UNITS + [409] * 4 + [201]
    # the script counted them, or there would be no place
    assert set(FlashSalePurchase.objects.values_list("place", flat=True)) == {1, 2, 3, UNITS + 4}
    assert len({key_slot(key(part).encode()) for part in (SALE, ADMITTED, BUYERS, PLACES)}) == 1


def form_of_a_sale(sale: FlashSale, **changed: Any) -> dict[str, Any]:
    """Return the admin's form for another sale of the product, a day long, from tomorrow."""
    days = {
        name: f"{timezone.now() + timedelta(days=days):%Y-%m-%d}" for name, days in (("starts", 1), ("ends", 2))
    }
    times = {f"{name}_at_0": day for name, day in days.items()} | {f"{name}_at_1": "10:00:00" for name in days}
    return {"product": sale.product_id, "units": 5, **times, **changed}


def test_the_operator_announces_a_sale(admin_client: Client, sale: FlashSale, mug: Product) -> None:
    assert "sneaker" in admin_client.get("/admin/shop/flashsale/", {"q": "sneaker"}).text.lower()
    assert admin_client.post(f"/admin/shop/flashsale/{sale.pk}/change/", {"units": 99}).status_code == 403
    form = admin_client.get(ADD).text
    assert ("Sneaker" in form, "Mug" in form) == (True, False)  # what is sold in flash sales alone
    for words in ("Former price:", "Starts at (UTC):", "Ends at (UTC):"):
        assert words in form
    wrong = admin_client.post(ADD, form_of_a_sale(sale, ends_at_0="2020-01-01"))
    assert (wrong.status_code, FlashSale.objects.count()) == (200, 1)
    unreadable = admin_client.post(ADD, form_of_a_sale(sale, former_price_minor="39,9"))
    assert b"Write the amount in digits" in unreadable.content
    assert admin_client.post(ADD, form_of_a_sale(sale, former_price_minor="399.00")).status_code == 302
    assert FlashSale.objects.filter(units=5, sold=0, former_price_minor=39900).count() == 1
    Product.objects.filter(pk=sale.product_id).update(currency="JPY")
    later = {"starts_at_1": "11:00:00", "ends_at_1": "11:00:00"}
    assert admin_client.post(ADD, form_of_a_sale(sale, former_price_minor="399", **later)).status_code == 302
    assert FlashSale.objects.filter(former_price_minor=399).count() == 1, "of the product's currency"
