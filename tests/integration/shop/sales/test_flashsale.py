"""Flash sales on real PostgreSQL and Redis: one unit a buyer, no unit too many, none lost, whatever Redis says."""

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

from idempotency.drf import idempotent
from idempotency.models import LedgerEntry
from idempotency.modes import PHASED
from idempotency.redis import fastpath
from shop import sales as flashsale
from shop import tasks
from shop.errors import AlreadyBought, SoldOut
from shop.models import FlashSale, FlashSalePurchase, Order, Product
from shop.orders import lifecycle
from shop.sales import gate
from tests.integration.shop.conftest import Caller
from tests.integration.shop.settling import keyed, number_of, on_payment, settle
from tests.running import until
from tests.system.stores.conftest import use
from tests.system.stores.stores import STORES, Store
from tests.threads import at_once

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


@pytest.fixture(params=["Redis", "no Redis"])
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    with override_settings(IDEMPOTENCY=keyed(request.param == "Redis")):
        yield


def codes(answers: list[Any]) -> list[str]:
    return [answer.json().get("code", "") for answer in answers]


def buy_directly(user: User) -> Order:
    with transaction.atomic():
        return flashsale.buy(sku="sneaker", user_id=user.pk)


def state(sale: FlashSale) -> tuple[int, int, int]:
    """(sold, standing purchases, stock): all three must tell the same."""
    sale.refresh_from_db()
    standing = FlashSalePurchase.objects.filter(sale=sale, returned_at__isnull=True).count()
    return sale.sold, standing, Product.objects.get(pk=sale.product_id).stock


@pytest.mark.usefixtures("either")
class TestBuying:
    """What a buyer hears, with Redis in front and without."""

    def test_the_unit_becomes_an_order(self, caller: Caller, sale: FlashSale) -> None:
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

    def test_another_key_is_a_second_purchase(self, caller: Caller, sale: FlashSale) -> None:
        caller.post(PATH, key="k1")
        refusals = [caller.post(PATH, key="k2") for _ in range(2)]
        assert [(refusal.status_code, refusal.json()["code"]) for refusal in refusals] == [
            (409, "already_bought")
        ] * 2
        assert refusals[0]["Content-Type"] == "application/problem+json"
        assert refusals[1]["Idempotent-Replayed"] == "true"
        assert state(sale) == (1, 1, 99)

    def test_the_units_are_sold_out(self, buyers: list[Caller], sale: FlashSale) -> None:
        answers = [buyer.post(PATH, key="k") for buyer in buyers]
        assert [answer.status_code for answer in answers] == [201] * UNITS + [409] * 3
        assert codes(answers)[UNITS:] == ["sold_out"] * 3
        assert buyers[0].post(PATH, key="k2").json()["code"] == "already_bought"
        assert state(sale) == (UNITS, UNITS, 100 - UNITS)

    def test_a_shelf_with_fewer_units_is_sold_out_earlier(self, buyers: list[Caller], sale: FlashSale) -> None:
        Product.objects.update(stock=1)
        assert [buyer.post(PATH, key="k").status_code for buyer in buyers[:2]] == [201, 409]
        assert state(sale) == (1, 1, 0)

    @pytest.mark.parametrize(("starts", "ends"), [(60, 120), (-120, -60)], ids=["not begun", "over"])
    def test_outside_of_its_time(self, caller: Caller, sale: FlashSale, starts: int, ends: int) -> None:
        now = timezone.now()
        FlashSale.objects.update(starts_at=now + timedelta(seconds=starts), ends_at=now + timedelta(seconds=ends))
        answer = caller.post(PATH, key="k")
        assert (answer.status_code, answer.json()["code"]) == (409, "flash_sale_not_running")
        assert state(sale) == (0, 0, 100)

    @pytest.mark.parametrize("sku", ["mug", "nothing"])
    def test_no_sale_of_it(self, caller: Caller, sale: FlashSale, mug: Product, sku: str) -> None:
        answer = caller.post(f"flash-sales/{sku}/orders", key="k")
        assert (answer.status_code, answer.json()["code"]) == (404, "flash_sale_not_found")

    def test_a_key_is_needed(self, caller: Caller, sale: FlashSale) -> None:
        answer = caller.post(PATH)
        assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_missing")

    def test_a_closed_order_gives_its_unit_back_once(self, buyers: list[Caller], sale: FlashSale) -> None:
        """The buyer may buy again, anybody else as well, and a refusal stays what it was under its own key."""
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

    def test_an_order_past_its_time_gives_its_unit_back(self, buyers: list[Caller], sale: FlashSale) -> None:
        for buyer in buyers[:UNITS]:
            buyer.post(PATH, key="k")
        Order.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        assert tasks.expire_orders(timestamp=0) == UNITS
        assert state(sale) == (0, 0, 100)
        assert [buyer.post(PATH, key="again").status_code for buyer in buyers] == [201] * UNITS + [409] * 3

    def test_a_refund_leaves_the_unit_sold(self, caller: Caller, sale: FlashSale, channels: Any) -> None:
        order_id = caller.post(PATH, key="k").json()["id"]
        assert caller.post(f"orders/{order_id}/payment", {"channel": "wechat"}, key="pay").status_code == 201
        settle(channels["wechat"].pay(number_of(order_id, "wechat")))
        with transaction.atomic():
            assert on_payment(order_id=Order.objects.get().pk, event="refunded")
        assert state(sale) == (1, 1, 99)
        assert caller.post(PATH, key="k2").json()["code"] == "already_bought"


class TestTheDatabase:
    """What it refuses whoever writes."""

    @pytest.mark.parametrize(
        ("values", "constraint"),
        [
            ({"sold": UNITS + 1}, "flash_sale_sold_within_units"),
            ({"sold": -1}, "flash_sale_sold_within_units|sold_check"),
            ({"ends_at": F("starts_at")}, "flash_sale_ends_after_its_start"),
        ],
        ids=["too many sold", "too many given back", "without end"],
    )
    def test_a_sale_that_cannot_be(self, sale: FlashSale, values: dict[str, Any], constraint: str) -> None:
        with pytest.raises(IntegrityError, match=constraint):
            FlashSale.objects.update(**values)

    def test_two_standing_purchases_of_a_buyer(self, demo: User, sale: FlashSale) -> None:
        first, second = buy_directly(demo), None
        lifecycle.cancel(order_id=first.pk, user_id=demo.pk)
        flashsale.returned(order_id=first.pk)
        second = buy_directly(demo)
        assert FlashSalePurchase.objects.get(order=second).returned_at is None
        with pytest.raises(IntegrityError, match="flash_sale_once_a_buyer"):
            FlashSalePurchase.objects.update(returned_at=None)


class TestWithoutSql:
    """What Redis answers by itself."""

    def test_those_who_come_too_late_or_again(
        self, buyers: list[Caller], sale: FlashSale, django_assert_num_queries: Any
    ) -> None:
        users = list(User.objects.order_by("pk"))
        for user in users[:UNITS]:
            buy_directly(user)
        with django_assert_num_queries(0):
            with pytest.raises(AlreadyBought):
                flashsale.buy(sku="sneaker", user_id=users[0].pk)
            with pytest.raises(SoldOut):
                flashsale.buy(sku="sneaker", user_id=users[UNITS].pk)

    def test_a_late_request_writes_its_ledger_row_alone(self, buyers: list[Caller], sale: FlashSale) -> None:
        for buyer in buyers[:UNITS]:
            buyer.post(PATH, key="k")
        connection.close()  # a session that has kept no plan yet
        with CaptureQueriesContext(connection) as queries:
            assert codes([buyers[UNITS].post(PATH, key="k")]) == ["sold_out"]
        statements = [query["sql"] for query in queries.captured_queries]
        assert not [sql for sql in statements if "shop_" in sql]
        assert [sql.split()[0] for sql in statements] == ["SELECT", "INSERT"]  # the token's; and no BEGIN


class TestTooLate:
    """A refusal that Redis knows of is kept without a claim of its key; all else is as with any other answer."""

    @pytest.fixture
    def late(self, buyers: list[Caller], sale: FlashSale) -> Caller:
        assert {buyer.post(PATH, key="k").status_code for buyer in buyers[:UNITS]} == {201}
        return buyers[UNITS]

    def test_it_is_replayed(self, late: Caller) -> None:
        first, *others = (late.post(PATH, key="k") for _ in range(3))
        assert (first.status_code, first.json()["code"], first.has_header("Idempotent-Replayed")) == (
            409,
            "sold_out",
            False,
        )
        for again in others:
            assert (again.status_code, again.content, again["Idempotent-Replayed"]) == (409, first.content, "true")
        assert LedgerEntry.objects.filter(response_status=409).count() == 1

    def test_copies_at_the_same_instant_are_one_entry(self, late: Caller) -> None:
        answers = at_once(*[lambda: Caller(User.objects.get(username=f"buyer{UNITS}")).post(PATH, key="k")] * 8)
        assert {answer.status_code for answer in answers} == {409}
        assert len({answer.content for answer in answers}) == 1
        assert len([answer for answer in answers if answer.has_header("Idempotent-Replayed")]) == 7

    def test_it_stays_under_its_key_when_a_unit_is_back(
        self, late: Caller, buyers: list[Caller], sale: FlashSale
    ) -> None:
        refused = late.post(PATH, key="k")
        order = Order.objects.order_by("pk")[0]
        lifecycle.cancel(order_id=order.pk, user_id=order.user_id)
        again = late.post(PATH, key="k")
        assert (again.content, again["Idempotent-Replayed"]) == (refused.content, "true")
        assert state(sale) == (UNITS - 1, UNITS - 1, 100 - UNITS + 1)
        assert buyers[UNITS + 1].post(PATH, key="k").status_code == 201, "the replay has taken no unit"

    def test_who_has_bought_hears_what_he_heard(self, late: Caller, buyers: list[Caller]) -> None:
        assert late.post(PATH, key="k").status_code == 409
        answers = [buyers[0].post(PATH, key=key) for key in ("k", "k2")]
        assert [answer.status_code for answer in answers] == [201, 409]
        assert (answers[0]["Idempotent-Replayed"], answers[1].json()["code"]) == ("true", "already_bought")

    def test_a_key_counts_for_one_sale(self, late: Caller) -> None:
        late.post(PATH, key="k")
        assert late.post("flash-sales/another/orders", key="k").json()["code"] == "idempotency_key_reused"

    def test_it_is_for_atomic_calls(self) -> None:
        with pytest.raises(TypeError, match="must be atomic"):
            idempotent(mode=PHASED, refuses=lambda *given: None)

    def test_its_bytes_may_be_purged(self, late: Caller) -> None:
        late.post(PATH, key="k")
        LedgerEntry.objects.filter(response_status=409).update(response_body=None, purged_at=timezone.now())
        assert late.post(PATH, key="k").json()["code"] == "idempotency_result_expired"


class TestArrival:
    """First come, first served."""

    def test_every_arrival_is_counted_and_the_first_ones_win(
        self, buyers: list[Caller], sale: FlashSale, redis_server: redis.Redis
    ) -> None:
        for buyer in buyers:
            buyer.post(PATH, key="k")
        bought = FlashSalePurchase.objects.order_by("place").values_list("place", "buyer__username")
        assert list(bought) == [(number + 1, f"buyer{number}") for number in range(UNITS)]
        assert redis_server.hget(key(SALE), "arrivals") == str(len(buyers)).encode()

    def test_numbers_go_on_after_a_loss(
        self, buyers: list[Caller], sale: FlashSale, redis_server: redis.Redis
    ) -> None:
        buyers[0].post(PATH, key="k")
        redis_server.flushall()
        buyers[1].post(PATH, key="k")
        first, second = FlashSalePurchase.objects.order_by("pk").values_list("place", flat=True)
        assert first is not None
        assert second is not None
        assert second > first


class TestAdmissions:
    """An admission that becomes no order goes back."""

    def test_a_cut_off_buyer_keeps_his_place_until_his_lease_is_over(
        self, buyers: list[Caller], sale: FlashSale, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        FlashSale.objects.update(units=1)
        monkeypatch.setattr(gate, "LEASE_SECONDS", 0.5)
        users = list(User.objects.order_by("pk"))
        first = flashsale.admit(sku="sneaker", user_id=users[0].pk)  # and its process dies here
        again = flashsale.admit(sku="sneaker", user_id=users[0].pk)
        assert first is not None
        assert again is not None
        assert (first.place, first.fresh, again.place, again.fresh) == (1, True, 1, False)

        number = iter(range(1000))
        until(lambda: buyers[1].post(PATH, key=f"k{next(number)}").status_code == 201)
        assert codes([buyers[0].post(PATH, key="k")]) == ["sold_out"]
        assert state(sale) == (1, 1, 99)

    def test_a_rolled_back_purchase_is_its_buyers_again(self, demo: User, sale: FlashSale) -> None:
        FlashSale.objects.update(units=1)
        with transaction.atomic():
            flashsale.buy(sku="sneaker", user_id=demo.pk)
            transaction.set_rollback(True)
        assert state(sale) == (0, 0, 100)
        assert buy_directly(demo).status == "pending"
        assert state(sale) == (1, 1, 99)

    def test_an_error_gives_the_place_to_the_next_one_at_once(
        self, buyers: list[Caller], sale: FlashSale, monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis
    ) -> None:
        FlashSale.objects.update(units=1)
        with monkeypatch.context() as broken, override_settings(ORDER_TTL_SECONDS="no number"):
            broken.setattr(buyers[0].http, "raise_request_exception", False)
            assert buyers[0].post(PATH, key="k").status_code == 500
        assert redis_server.zcard(key(ADMITTED)) == redis_server.hlen(key(PLACES)) == 0
        assert buyers[1].post(PATH, key="k").status_code == 201


class TestRedisIsNotTheJudge:
    """Flushed, foreign, generous or stingy."""

    def test_flushed_after_every_purchase(
        self, buyers: list[Caller], sale: FlashSale, redis_server: redis.Redis
    ) -> None:
        answers = []
        for buyer in buyers:
            answers.append(buyer.post(PATH, key="k"))
            redis_server.flushall()
        assert [answer.status_code for answer in answers] == [201] * UNITS + [409] * 3
        assert buyers[0].post(PATH, key="k2").json()["code"] == "already_bought"
        assert redis_server.scard(key(BUYERS)) == UNITS

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
        buyers[0].post(PATH, key="k")
        redis_server.sadd(key(BUYERS), 10**9, 10**9 + 1)
        assert codes([buyers[1].post(PATH, key="k")]) == ["sold_out"]
        assert tasks.sweep_flash_sales(timestamp=0) == 2
        assert tasks.sweep_flash_sales(timestamp=0) == 0
        assert [buyer.post(PATH, key="again").status_code for buyer in buyers[1:]] == [201, 201, 409, 409, 409]

    def test_a_close_that_redis_did_not_hear_of(self, buyers: list[Caller], demo: User, sale: FlashSale) -> None:
        FlashSale.objects.update(units=1)
        order = buy_directly(demo)
        with override_settings(IDEMPOTENCY=keyed(False)):  # away while it closes
            lifecycle.cancel(order_id=order.pk, user_id=demo.pk)
        assert codes([buyers[0].post(PATH, key="k")]) == ["sold_out"]
        assert tasks.sweep_flash_sales(timestamp=0) == 1
        assert buyers[0].post(PATH, key="again").status_code == 201

    def test_a_purchase_while_the_sweep_runs_is_not_forgotten(
        self, buyers: list[Caller], sale: FlashSale, demo: User
    ) -> None:
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

    @pytest.mark.parametrize("part", [SALE, ADMITTED, BUYERS, PLACES])
    def test_something_else_stands_there(
        self, buyers: list[Caller], sale: FlashSale, redis_server: redis.Redis, part: int
    ) -> None:
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

    def test_another_sale_of_the_same_product(
        self, caller: Caller, sale: FlashSale, sneaker: Product, redis_server: redis.Redis
    ) -> None:
        caller.post(PATH, key="k")
        now = timezone.now()
        FlashSale.objects.create(product=sneaker, units=1, starts_at=now, ends_at=now + timedelta(hours=1))
        assert codes([caller.post(PATH, key="k2")]) == ["already_bought"]  # the sweep tells of the new sale
        assert tasks.sweep_flash_sales(timestamp=0) == 0
        assert caller.post(PATH, key="k3").status_code == 201
        assert FlashSalePurchase.objects.count() == 2


class TestLooking:
    """What is told to who waits."""

    def test_without_sql_while_it_runs(
        self, buyers: list[Caller], sale: FlashSale, django_assert_num_queries: Any
    ) -> None:
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
        assert flashsale.look(sku="sneaker", user_id=users[0].pk).bought
        assert flashsale.look(sku="sneaker", user_id=None).place is None

        returned = Order.objects.get(user=users[0])
        # heard by Redis with the commit, without a sweep
        lifecycle.cancel(order_id=returned.pk, user_id=users[0].pk)
        assert flashsale.look(sku="sneaker", user_id=late.pk).left == 1
        assert FlashSalePurchase.objects.get(order=buy_directly(late)).place == UNITS + 1

    def test_numbers_kept_of_those_who_came_too_late_are_bounded(
        self, buyers: list[Caller], sale: FlashSale, monkeypatch: pytest.MonkeyPatch, redis_server: redis.Redis
    ) -> None:
        FlashSale.objects.update(units=1)
        monkeypatch.setattr(gate, "PLACES_MAX", 2)
        for buyer in buyers:
            buyer.post(PATH, key="k")
        assert redis_server.hlen(key(PLACES)) == 2
        assert redis_server.pttl(key(PLACES)) > 0

    def test_the_first_one_who_looks_has_redis_read_the_database(self, sale: FlashSale, demo: User) -> None:
        first, second = (flashsale.look(sku="sneaker", user_id=demo.pk) for _ in range(2))
        assert (first.left, first.units, first.arrivals) == (UNITS, UNITS, None)
        assert (second.left, second.units, second.arrivals) == (UNITS, UNITS, 0)

    def test_without_redis_the_database_tells(self, sale: FlashSale, demo: User) -> None:
        with override_settings(IDEMPOTENCY=keyed(False)):
            buy_directly(demo)
            found = flashsale.look(sku="sneaker", user_id=demo.pk)
        assert (found.phase, found.left, found.units, found.bought) == (
            flashsale.Phase.RUNNING,
            UNITS - 1,
            UNITS,
            True,
        )
        Product.objects.update(stock=1)  # the shelf has less than the sale was to sell
        flashsale.forget()
        with override_settings(IDEMPOTENCY=keyed(False)):
            assert flashsale.look(sku="sneaker", user_id=None).left == 1


@pytest.mark.parametrize("name", [name for name in STORES if name != "no Redis"])
def test_on_every_server(
    buyers: list[Caller],
    sale: FlashSale,
    stores: Callable[[str], Store],
    name: str,
) -> None:
    with contextmanager(use)(stores(name)):
        answers = [buyer.post(PATH, key="k") for buyer in buyers]
        answers.append(buyers[0].post(PATH, key="k2"))
        buyers[0].post(f"orders/{answers[0].json()['id']}/cancel", key="c")
        answers.append(buyers[0].post(PATH, key="k3"))
    fastpath.breaker.succeeded()
    assert [answer.status_code for answer in answers] == [201] * UNITS + [409] * 4 + [201]
    # the script counted them, or there would be no place
    assert set(FlashSalePurchase.objects.values_list("place", flat=True)) == {1, 2, 3, UNITS + 4}
    assert len({key_slot(key(part).encode()) for part in (SALE, ADMITTED, BUYERS, PLACES)}) == 1


def test_the_operator_sees_sales_and_purchases(client: Client, demo: User, sale: FlashSale) -> None:
    buy_directly(demo)
    client.force_login(User.objects.create_superuser("boss"))
    for model, wanted in (("flashsale", b"sneaker"), ("flashsalepurchase", b"demo")):
        listed = client.get(f"/admin/shop/{model}/", {"q": "sneaker"})
        assert (listed.status_code, wanted.lower() in listed.content.lower()) == (200, True)
    assert client.get("/admin/shop/flashsalepurchase/add/").status_code == 403
    assert client.post(f"/admin/shop/flashsale/{sale.pk}/change/", {"units": 99}).status_code == 403


def form_of_a_sale(sale: FlashSale, **changed: Any) -> dict[str, Any]:
    """Return what the admin sends for another sale of the product, a day long, from tomorrow on."""
    days = {
        name: f"{timezone.now() + timedelta(days=days):%Y-%m-%d}" for name, days in (("starts", 1), ("ends", 2))
    }
    times = {f"{name}_at_0": day for name, day in days.items()} | {f"{name}_at_1": "10:00:00" for name in days}
    return {"product": sale.product_id, "units": 5, **times, **changed}


def test_the_operator_announces_a_sale(client: Client, sale: FlashSale, mug: Product) -> None:
    client.force_login(User.objects.create_superuser("boss"))
    form = client.get(ADD).content
    assert (b"Sneaker" in form, b"Mug" in form) == (True, False)  # what is sold in flash sales alone
    wrong = client.post(ADD, form_of_a_sale(sale, ends_at_0="2020-01-01"))
    assert (wrong.status_code, FlashSale.objects.count()) == (200, 1)
    unreadable = client.post(ADD, form_of_a_sale(sale, former_price_minor="39,9"))
    assert b"Write the amount in digits" in unreadable.content
    assert client.post(ADD, form_of_a_sale(sale, former_price_minor="399.00")).status_code == 302
    assert FlashSale.objects.filter(units=5, sold=0, former_price_minor=39900).count() == 1


def test_the_form_of_a_sale_names_its_price_and_zone(client: Client, sale: FlashSale) -> None:
    client.force_login(User.objects.create_superuser("boss"))
    form = client.get(ADD).content.decode()
    for words in ("Former price:", "Starts at (UTC):", "Ends at (UTC):"):
        assert words in form
    Product.objects.filter(pk=sale.product_id).update(currency="JPY")
    assert client.post(ADD, form_of_a_sale(sale, former_price_minor="399")).status_code == 302
    assert FlashSale.objects.filter(former_price_minor=399).count() == 1, "of the product's currency"


def test_the_call_is_documented(client: Client) -> None:
    document = client.get("/api/schema/?format=json").json()
    call = document["paths"]["/api/v1/flash-sales/{sku}/orders"]["post"]
    refusal = call["responses"]["409"]
    assert "`sold_out`, `already_bought`" in refusal["description"]
    assert set(refusal["content"]["application/problem+json"]["examples"]) == {"SoldOut", "AlreadyBought"}
