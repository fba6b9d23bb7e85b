"""The shop with its worker and a shopper who pays through Stripe, the sandbox as witness of every charge."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.running import RunningShop, until
from tests.system.concurrency.conftest import charges, pay, place, shopper_pays

pytestmark = pytest.mark.timeout(180)


def becomes(api: httpx.Client, order: dict[str, Any], status: str) -> None:
    until(lambda: api.get(f"/api/v1/orders/{order['id']}").json()["status"] == status, seconds=60)


def test_paid_on_the_page_told_many_times_and_given_back_in_parts(
    api: httpx.Client, sandbox: httpx.Client
) -> None:
    sandbox.post("/_control/faults", json={"duplicates": 5, "parallel": 5, "reorder": True}).raise_for_status()
    order = place(api, uuid4().hex).json()
    answer = pay(api, order["id"], "stripe")
    assert answer.status_code == 201
    payment = answer.json()
    (attempt,) = payment["attempts"]
    assert (attempt["channel"], attempt["next_action"]["type"]) == ("stripe", "redirect")
    back = sandbox.post(attempt["next_action"]["url"]).headers["Location"]
    assert f"/orders/{order['id']}/back?payment_intent=pi_" in back
    becomes(api, order, "paid")
    for amount_minor in (990, 1000):
        refund = api.post(
            f"/api/v1/payments/{payment['id']}/refunds",
            json={"amount_minor": amount_minor, "reason": "changed mind"},
            headers={"Idempotency-Key": uuid4().hex},
        )
        assert refund.status_code == 201
    told = api.get(f"/api/v1/payments/{payment['id']}").json()
    assert (told["status"], told["paid_minor"], told["refunded_minor"]) == ("refunded", 1990, 1990)
    assert charges(sandbox)[attempt["out_trade_no"]] == (1990, 1990)


def test_when_every_notification_is_lost_the_timer_finds_the_payment(
    shop: RunningShop, api: httpx.Client, sandbox: httpx.Client
) -> None:
    sandbox.post("/_control/faults", json={"drop_rate": 1}).raise_for_status()
    order = place(api, uuid4().hex).json()
    shopper_pays(sandbox, pay(api, order["id"], "stripe").json()["attempts"][0])
    with shop.database() as connection:  # its next question falls due
        connection.execute("UPDATE payments_attempt SET next_query_at = now() WHERE next_query_at IS NOT NULL")
    becomes(api, order, "paid")


def test_an_answer_that_never_came_is_asked_for_under_the_same_number(
    api: httpx.Client, sandbox: httpx.Client
) -> None:
    order, key = place(api, uuid4().hex).json(), uuid4().hex
    sandbox.post("/_control/faults", json={"timeout_after_success": 1}).raise_for_status()
    first = pay(api, order["id"], "stripe", key)
    assert (first.status_code, first.json()["status"]) == (202, "uncertain")
    payment = pay(api, order["id"], "stripe").json()
    (attempt,) = payment["attempts"]
    assert attempt["out_trade_no"] == first.json()["attempts"][0]["out_trade_no"]
    assert attempt["next_action"]["type"] == "redirect"
    shopper_pays(sandbox, attempt)
    becomes(api, order, "paid")


def test_paid_by_two_channels_one_is_given_back_by_itself(api: httpx.Client, sandbox: httpx.Client) -> None:
    order = place(api, uuid4().hex).json()
    for channel in ("wechat", "stripe"):
        payment = pay(api, order["id"], channel).json()
    numbers = [attempt["out_trade_no"] for attempt in payment["attempts"]]
    for attempt in payment["attempts"]:
        shopper_pays(sandbox, attempt)
    until(lambda: sum(charges(sandbox)[number][1] for number in numbers) == 1990, seconds=60)
    assert sorted(charges(sandbox)[number] for number in numbers) == [(1990, 0), (1990, 1990)]


def test_a_cancelled_order_cannot_be_paid_at_stripe_any_more(api: httpx.Client, sandbox: httpx.Client) -> None:
    order = place(api, uuid4().hex).json()
    (attempt,) = pay(api, order["id"], "stripe").json()["attempts"]
    cancelled = api.post(f"/api/v1/orders/{order['id']}/cancel", headers={"Idempotency-Key": uuid4().hex})
    assert cancelled.json()["status"] == "closed"
    late = sandbox.post("/_control/pay", json={"out_trade_no": attempt["out_trade_no"]})
    assert late.status_code == 409
