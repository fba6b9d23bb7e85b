"""kill -9 at every boundary of paying, of placing an order and of a flash sale: all or nothing, then exactly one."""

from typing import Any
from uuid import UUID, uuid4

from tests.running import pay_as_shopper
from tests.system.concurrency.shop.crowd import Crowd, open_sale
from tests.system.crash.conftest import MortalShop


def pay_path(order_id: str) -> str:
    return f"/api/v1/orders/{order_id}/payment"


def boundaries_of_paying(shop: MortalShop, channel: str) -> int:
    """The fewest: a process asks for the ledger's epoch now and then, which is a boundary more."""
    body = {"channel": channel}
    answers = [shop.answer(pay_path(shop.new_order()), body, key=uuid4().hex) for _ in range(2)]
    return min(int(answer.headers["X-Fault-Count"]) for answer in answers)


def shopper_pays(shop: MortalShop, payment: dict[str, Any]) -> None:
    (attempt,) = payment["attempts"]
    pay_as_shopper(shop.sandbox.http, attempt)
    shop.wait_until_paid(payment["order"])


def charged_once(shop: MortalShop, order_id: str) -> None:
    """One payment, one attempt, one charge of the exact amount, credited once."""
    payments = shop.rows(
        "SELECT id, amount_minor, paid_minor, status FROM payments_payment WHERE order_id = %s", UUID(order_id)
    )
    assert [(row[2], row[3]) for row in payments] == [(payments[0][1], "succeeded")]
    attempts = shop.rows("SELECT id FROM payments_attempt WHERE payment_id = %s", payments[0][0])
    assert len(attempts) == 1
    charges = shop.sandbox.charges()
    assert [charges[number.hex]["charged_minor"] for (number,) in attempts] == [payments[0][1]]
    facts = shop.rows(
        "SELECT count(*) FROM payments_observation o JOIN payments_attempt a ON a.id = o.attempt_id "
        "WHERE a.payment_id = %s AND o.kind = 'paid' AND o.credited",
        payments[0][0],
    )
    assert facts == [(1,)]


def test_paying_survives_a_kill_at_every_boundary(shop: MortalShop) -> None:
    body = {"channel": "wechat"}
    count = boundaries_of_paying(shop, "wechat")
    assert count >= 15
    for boundary in range(1, count + 1):
        order_id, key = shop.new_order(), uuid4().hex
        died = shop.post(pay_path(order_id), body, key=key, die_at=boundary)
        assert died is None, f"boundary {boundary} was not reached"
        shop.let_time_pass()
        retried = shop.answer(pay_path(order_id), body, key=key)
        shopper_pays(shop, retried.json())
        assert shop.answer(pay_path(order_id), body, key=key).content == retried.content
        charged_once(shop, order_id)


def test_the_timer_and_a_new_key_reach_one_charge_too(shop: MortalShop) -> None:
    """Nobody retries the killed call; the timer runs, and later the shopper presses Pay on a fresh page."""
    orders = []
    for first, channel in ((1, "wechat"), (2, "alipay")):
        for boundary in range(first, boundaries_of_paying(shop, channel) + 1, 4):
            orders.append((shop.new_order(), {"channel": channel}))
            path, body = pay_path(orders[-1][0]), orders[-1][1]
            assert shop.post(path, body, key=uuid4().hex, die_at=boundary) is None
    shop.let_time_pass()
    shop.manage("reconcile")
    for order_id, body in orders:
        shopper_pays(shop, shop.answer(pay_path(order_id), body, key=uuid4().hex).json())
        charged_once(shop, order_id)


def test_placing_an_order_survives_a_kill_at_every_boundary(shop: MortalShop) -> None:
    path, body = "/api/v1/orders", {"items": [{"sku": "mug", "quantity": 2}]}

    def now() -> tuple[int, int]:
        """Stock and orders."""
        statement = "SELECT stock, (SELECT count(*) FROM shop_order) FROM shop_product WHERE sku = 'mug'"
        ((stock, orders),) = shop.rows(statement)
        return stock, orders

    count = min(int(shop.answer(path, body, key=uuid4().hex).headers["X-Fault-Count"]) for _ in range(2))
    assert count >= 8
    for boundary in range(1, count + 1):
        key = uuid4().hex
        stock, orders = now()
        assert shop.post(path, body, key=key, die_at=boundary) is None
        assert now() in {(stock, orders), (stock - 2, orders + 1)}
        shop.let_time_pass()
        retried, again = (shop.answer(path, body, key=key) for _ in range(2))
        assert again.content == retried.content
        assert now() == (stock - 2, orders + 1), f"boundary {boundary}"


def test_a_flash_sale_survives_a_kill_at_every_boundary(shop: MortalShop) -> None:
    """A buyer whose process died gets their order with the same key, or their unit goes to somebody else."""
    open_sale(shop.database, sku="measured", units=2)
    with Crowd(shop.database, sku="measured", count=2) as crowd:
        for token in crowd.tokens:  # the second one, when the sale is known to Redis
            bought = shop.answer("/api/v1/flash-sales/measured/orders", key=uuid4().hex, token=token)
    boundaries = int(bought.headers["X-Fault-Count"])
    assert boundaries >= 9

    path = "/api/v1/flash-sales/deadly/orders"
    sale = open_sale(shop.database, sku="deadly", units=boundaries)
    with Crowd(shop.database, sku="deadly", count=2 * boundaries) as crowd:
        keys = {token: uuid4().hex for token in crowd.tokens[:boundaries]}
        for at, (token, key) in enumerate(keys.items(), 1):
            assert shop.post(path, key=key, die_at=at, token=token) is None
        shop.redis.delete(*shop.redis.keys("*:key:*"))  # what the markers' time does: three seconds
        for token in crowd.tokens[:boundaries:2]:
            retried, again = (shop.answer(path, key=keys[token], token=token) for _ in range(2))
            assert again.content == retried.content
        # those who do not come back lose their places when the leases are over
        crowd.sell_the_rest([shop.url], tokens=crowd.tokens[boundaries:])
        crowd.sold_exactly(sale, boundaries)
