"""kill -9 at every boundary of the payment view and of placing an order: all or nothing, then exactly one."""

from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.system.crash.conftest import MortalShop

CHANNELS = ("wechat", "alipay")


def pay_path(order_id: str) -> str:
    return f"/api/v1/orders/{order_id}/payment"


def crossed(answer: Any) -> int:
    """How many boundaries the request that was answered has crossed."""
    assert answer is not None
    assert answer.status_code == 201
    return int(answer.headers["X-Fault-Count"])


def boundaries_of_paying(shop: MortalShop, channel: str) -> int:
    """The fewest: a process asks for the ledger's epoch now and then, which is a boundary more."""
    body = {"channel": channel}
    return min(crossed(shop.post(pay_path(shop.new_order()), body, key=uuid4().hex)) for _ in range(3))


def shopper_pays(shop: MortalShop, payment: dict[str, Any]) -> None:
    """Go on where the answer says: the page of Alipay, the code of WeChat."""
    (attempt,) = payment["attempts"]
    if attempt["next_action"]["type"] == "redirect":
        httpx.get(attempt["next_action"]["url"], follow_redirects=True, trust_env=False).raise_for_status()
    shop.sandbox.pay(attempt["out_trade_no"])
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


@pytest.mark.parametrize("channel", CHANNELS)
def test_paying_survives_a_kill_at_every_boundary(shop: MortalShop, channel: str) -> None:
    """By the second channel at a third of them: between two statements it is the first one's code."""
    count = boundaries_of_paying(shop, channel)
    assert count >= 15
    for boundary in range(1, count + 1, 1 + 2 * CHANNELS.index(channel)):
        order_id, key = shop.new_order(), uuid4().hex
        died = shop.post(pay_path(order_id), {"channel": channel}, key=key, die_at=boundary)
        assert died is None, f"boundary {boundary} was not reached"
        shop.let_time_pass()
        retried = shop.post(pay_path(order_id), {"channel": channel}, key=key)
        assert retried is not None
        assert retried.status_code == 201, (boundary, retried.text)
        shopper_pays(shop, retried.json())
        charged_once(shop, order_id)
        again = shop.post(pay_path(order_id), {"channel": channel}, key=key)
        assert again is not None
        assert again.content == retried.content
        charged_once(shop, order_id)


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_timer_and_a_new_key_reach_one_charge_too(shop: MortalShop, channel: str) -> None:
    """Nobody retries the killed call; the timer runs, and later the shopper presses Pay on a fresh page."""
    count = boundaries_of_paying(shop, channel)
    orders = []
    for boundary in range(1 + 3 * CHANNELS.index(channel), count + 1, 3 * len(CHANNELS)):
        orders.append(shop.new_order())
        assert shop.post(pay_path(orders[-1]), {"channel": channel}, key=uuid4().hex, die_at=boundary) is None
    shop.let_time_pass()
    shop.manage("reconcile")
    for order_id in orders:
        fresh = shop.post(pay_path(order_id), {"channel": channel}, key=uuid4().hex)
        assert fresh is not None
        assert fresh.status_code == 201, fresh.text
        shopper_pays(shop, fresh.json())
        charged_once(shop, order_id)


def test_placing_an_order_survives_a_kill_at_every_boundary(shop: MortalShop) -> None:
    body = {"items": [{"sku": "mug", "quantity": 2}]}

    def stock() -> int:
        return int(shop.rows("SELECT stock FROM shop_product WHERE sku = 'mug'")[0][0])

    def orders() -> int:
        return int(shop.rows("SELECT count(*) FROM shop_order")[0][0])

    count = min(crossed(shop.post("/api/v1/orders", body, key=uuid4().hex)) for _ in range(3))
    assert count >= 8
    for boundary in range(1, count + 1):
        key = uuid4().hex
        stock_before, orders_before = stock(), orders()
        assert shop.post("/api/v1/orders", body, key=key, die_at=boundary) is None
        assert (stock(), orders()) in {(stock_before, orders_before), (stock_before - 2, orders_before + 1)}
        shop.let_time_pass()
        retried, again = (shop.post("/api/v1/orders", body, key=key) for _ in range(2))
        assert retried is not None
        assert again is not None
        assert (retried.status_code, again.content) == (201, retried.content)
        assert (stock(), orders()) == (stock_before - 2, orders_before + 1), f"boundary {boundary}"
