"""Shoppers who look or retry without end have a provider asked once in a while."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
import redis
from django.test import Client

from idempotency.locks.engine.hub import tagged
from payments.attempts import asking
from payments.channels import limits
from payments.models import Attempt, Payment, Refund
from payments.reconciliation import reconcile
from shop.models import Order
from tests.payments_settings import limited
from tests.system.money.till import CALLING, CHANNELS, PRICE_MINOR, Till
from tests.threads import at_once

LOOKS = 4
EVERY = pytest.mark.parametrize("channel", CHANNELS)


@pytest.fixture
def calls(till: Till, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call to the sandbox's providers; no notification is sent."""
    till.sandbox.faults(drop_rate=1)
    monkeypatch.setattr(asking, "AGAIN", timedelta(hours=1))
    send, found = httpx.Client.send, []

    def counted(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if self is not till.sandbox.http and str(request.url).startswith(till.sandbox.url):
            found.append(f"{request.method} {request.url.path}")
        return send(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", counted)
    return found


@pytest.fixture
def browser(till: Till, live_server: Any) -> Iterator[httpx.Client]:
    """The shopper's, logged in."""
    client = Client()
    client.force_login(till.user)
    cookies = {"sessionid": client.cookies["sessionid"].value}
    with httpx.Client(base_url=live_server.url, cookies=cookies, trust_env=False) as made:
        yield made


def look(browser: httpx.Client, order: Order, how: str) -> None:
    assert browser.get(f"/orders/{order.id.hex}{how}").status_code == 302


def later() -> None:
    """Long enough for the next question."""
    Attempt.objects.update(asked_at=None)


@EVERY
def test_many_looks_make_one_question(till: Till, calls: list[str], browser: httpx.Client, channel: str) -> None:
    order = till.order()
    attempt = till.open(order, channel, method=CALLING[channel])
    calls.clear()
    for how in ("/back", "?check=1", f"?out_trade_no={attempt.out_trade_no}"):
        for _ in range(LOOKS):
            look(browser, order, how)
    assert len(calls) == 1
    later()
    look(browser, order, "/back")
    assert len(calls) == 2
    till.sandbox.pay(attempt.out_trade_no)
    later()
    look(browser, order, "/back")
    assert till.state(attempt) == ("paid", "succeeded", PRICE_MINOR, 0)


def test_looks_at_the_same_instant_make_one_question(till: Till, calls: list[str], browser: httpx.Client) -> None:
    order = till.order()
    till.open(order, "wechat")
    calls.clear()
    at_once(*[lambda: look(browser, order, "/back")] * 8)
    assert len(calls) == 1


def test_each_open_attempt_has_a_question_of_its_own(till: Till, calls: list[str], browser: httpx.Client) -> None:
    order = till.order()
    for channel in CHANNELS:
        till.open(order, channel, method=CALLING[channel])
    calls.clear()
    for _ in range(LOOKS):
        look(browser, order, "?check=1")
    assert len(calls) == len(CHANNELS)


def asks_once(till: Till, calls: list[str], again: Callable[[], Any]) -> None:
    """Retry a 202 while the provider answers 500: the first retry alone asks."""
    till.sandbox.faults(http_500_rate=1)
    made = []
    for _ in range(LOOKS):
        calls.clear()
        assert again().status_code == 202
        made.append(len(calls))
    assert (made[0] > 0, made[1:]) == (True, [0] * (LOOKS - 1))
    till.sandbox.faults(http_500_rate=0)


@EVERY
def test_retries_of_an_opening_in_doubt_ask_once(till: Till, calls: list[str], channel: str) -> None:
    order = till.order()
    till.sandbox.faults(timeout_after_success=1)
    start: Callable[[], Any] = lambda: till.start(order, channel, method=CALLING[channel], key="pay")  # noqa: E731
    assert start().status_code == 202
    asks_once(till, calls, start)
    assert start().json()["attempts"][0]["status"] == "uncertain"  # as is known
    later()
    assert start().json()["attempts"][0]["status"] == "pending"


@EVERY
def test_retries_of_a_refund_in_doubt_ask_once(till: Till, calls: list[str], channel: str) -> None:
    attempt = till.bought(channel)
    till.sandbox.faults(timeout_after_success=1)
    assert till.refund(attempt, 990, key="refund").status_code == 202
    asks_once(till, calls, lambda: till.refund(attempt, 990, key="refund"))
    later()
    assert till.refund(attempt, 990, key="refund").json()["status"] == "succeeded"
    assert (Refund.objects.count(), till.moved(attempt)) == (1, (PRICE_MINOR, 990))


@EVERY
def test_retries_of_a_cancellation_in_doubt_ask_once(till: Till, calls: list[str], channel: str) -> None:
    order = till.order()
    till.open(order, channel, method=CALLING[channel])
    till.sandbox.faults(http_500_rate=1)
    calls.clear()
    assert till.cancel(order, key="cancel").status_code == 202
    assert calls
    asks_once(till, calls, lambda: till.cancel(order, key="cancel"))
    later()
    assert till.cancel(order, key="cancel").json()["status"] == "closed"


def test_opening_refunding_closing_and_the_timer_go_out_while_shoppers_ask_without_end(
    till: Till,
    calls: list[str],
    browser: httpx.Client,
    settings: Any,
    redis_server: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole rate of a window that does not end; a share of it is the shoppers'."""
    bought = till.bought("wechat")
    orders = [till.order() for _ in range(8)]
    opened = [till.open(order, "wechat") for order in orders]
    later_one = till.order()
    monkeypatch.setattr(limits, "RATE_SECONDS", 3600)
    monkeypatch.setattr(asking, "AGAIN", timedelta(0))
    settings.PAYMENTS = limited(CALLS_PER_SECOND=8, WAIT_SECONDS=0)
    redis_server.delete(tagged("rate", "provider:wechat"))  # what went out so far
    calls.clear()
    for _ in range(3):
        for order in orders:
            look(browser, order, "/back")
    assert len(calls) == 8 * limits.SHOPPERS_SHARE
    calls.clear()
    assert till.start(later_one, "wechat").status_code == 201
    assert till.refund(bought, 990).status_code == 201
    assert till.cancel(orders[0]).json()["status"] == "closed"
    Attempt.objects.filter(pk=opened[1].pk).update(next_query_at=opened[1].created_at)
    assert next(reconcile.all_due(batch=1)).count == 1
    assert len(calls) == 4
    look(browser, orders[2], "/back")
    assert len(calls) == 4
    assert Payment.objects.get(order_id=orders[2].id).status == "pending"
