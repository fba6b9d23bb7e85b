"""The shop with its worker, the sandbox as witness: lost notifications, two channels, answers that never come."""

from uuid import uuid4

import httpx
import pytest

from tests.running import RunningShop, until
from tests.system.concurrency.conftest import charges, pay, place, shopper_pays

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("channel", ["wechat", "alipay"])
def test_when_every_notification_is_lost_the_timer_finds_the_payment(
    shop: RunningShop, api: httpx.Client, sandbox: httpx.Client, channel: str
) -> None:
    sandbox.post("/_control/faults", json={"drop_rate": 1}).raise_for_status()
    order = place(api, uuid4().hex).json()
    payment = pay(api, order["id"], channel).json()
    shopper_pays(sandbox, payment["attempts"][0])
    with shop.database() as connection:  # its next question falls due
        connection.execute("UPDATE payments_attempt SET next_query_at = now() WHERE next_query_at IS NOT NULL")
    until(lambda: api.get(f"/api/v1/orders/{order['id']}").json()["status"] == "paid", seconds=60)
    assert api.get(f"/api/v1/payments/{payment['id']}").json()["paid_minor"] == 1990


def test_what_follows_from_a_payment_is_done_by_the_worker(
    shop: RunningShop, api: httpx.Client, sandbox: httpx.Client
) -> None:
    """By a job that its timer makes: what is merely overdue would wait for half a minute."""
    order = place(api, uuid4().hex).json()
    payment = pay(api, order["id"], "wechat").json()
    shopper_pays(sandbox, payment["attempts"][0])
    with shop.database() as connection:
        until(
            lambda: (
                connection.execute(
                    "SELECT count(*) FROM payments_paymentevent WHERE payment_id = %s AND handled_at IS NOT NULL",
                    [payment["id"]],
                ).fetchone()
                == (1,)
            ),
            seconds=20,
        )
        released = connection.execute("SELECT status FROM shop_fulfilment WHERE order_id = %s", [order["id"]])
        assert released.fetchone() == ("released",)


def test_paid_by_both_channels_one_is_given_back_by_itself(
    shop: RunningShop, api: httpx.Client, sandbox: httpx.Client
) -> None:
    order = place(api, uuid4().hex).json()
    for channel in ("wechat", "alipay"):
        payment = pay(api, order["id"], channel).json()
    attempts = payment["attempts"]
    assert [attempt["channel"] for attempt in attempts] == ["wechat", "alipay"]
    for attempt in attempts:
        shopper_pays(sandbox, attempt)
    numbers = [attempt["out_trade_no"] for attempt in attempts]
    until(lambda: sorted(charges(sandbox)[number] for number in numbers) == [(1990, 0), (1990, 1990)], seconds=60)
    until(lambda: api.get(f"/api/v1/payments/{payment['id']}").json()["status"] == "succeeded")
    with shop.database() as connection:
        resolved = until(
            lambda: (
                connection.execute(
                    "SELECT count(*) FROM payments_anomaly WHERE kind = 'paid_twice' AND resolved_at IS NOT NULL"
                ).fetchone()
                == (1,)
            )
        )
    assert resolved
    assert sorted(charges(sandbox)[number] for number in numbers) == [(1990, 0), (1990, 1990)]


def test_a_wrong_amount_is_never_credited_and_given_back(
    shop: RunningShop, api: httpx.Client, sandbox: httpx.Client
) -> None:
    sandbox.post("/_control/faults", json={"wrong_amount": True}).raise_for_status()
    order = place(api, uuid4().hex).json()
    payment = pay(api, order["id"], "wechat").json()
    (attempt,) = payment["attempts"]
    shopper_pays(sandbox, attempt)
    until(lambda: charges(sandbox)[attempt["out_trade_no"]] == (2090, 2090), seconds=60)
    assert api.get(f"/api/v1/payments/{payment['id']}").json()["paid_minor"] == 0
    assert api.get(f"/api/v1/orders/{order['id']}").json()["status"] == "pending"


def test_an_answer_that_never_comes_is_202_and_later_the_current_state(
    shop: RunningShop, api: httpx.Client, sandbox: httpx.Client
) -> None:
    sandbox.post("/_control/faults", json={"timeout_after_success": 1}).raise_for_status()
    order, key = place(api, uuid4().hex).json(), uuid4().hex
    first = pay(api, order["id"], "wechat", key)
    assert (first.status_code, first.json()["status"]) == (202, "uncertain")
    again = pay(api, order["id"], "wechat", key)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (202, "true")
    (attempt,) = again.json()["attempts"]
    assert (again.json()["status"], attempt["next_action"]["type"]) == ("pending", "qr_code")
    assert attempt["out_trade_no"] == first.json()["attempts"][0]["out_trade_no"]
    shopper_pays(sandbox, attempt)
    until(lambda: api.get(f"/api/v1/orders/{order['id']}").json()["status"] == "paid")
    last = pay(api, order["id"], "wechat", key)
    assert (last.status_code, last.json()["status"]) == (202, "succeeded")
    assert charges(sandbox)[attempt["out_trade_no"]] == (1990, 0)


def test_the_sandbox_pays_by_the_number_alone_where_nobody_opened_the_page(
    api: httpx.Client, sandbox: httpx.Client
) -> None:
    order = place(api, uuid4().hex).json()
    [attempt] = pay(api, order["id"], "alipay").json()["attempts"]
    assert attempt["next_action"]["type"] == "redirect"
    number = attempt["out_trade_no"]
    assert sandbox.post("/_control/pay", json={"out_trade_no": number}).status_code == 200
    until(lambda: api.get(f"/api/v1/orders/{order['id']}").json()["status"] == "paid")
    [charge] = [one for one in sandbox.get("/_control/charges").json() if one["out_trade_no"] == number]
    assert charge == {"out_trade_no": number, "channel": "alipay", "charged_minor": 1990, "refunded_minor": 0}
    assert sandbox.post("/_control/pay", json={"out_trade_no": "0" * 32}).status_code == 404
