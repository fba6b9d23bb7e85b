"""The page of a flash sale before, during and after; its button counts once."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from shop import sales as flashsale
from shop.models import FlashSale, FlashSalePurchase, Order, Product
from shop.orders import lifecycle
from shop.sales import looking
from tests.integration.shop.web.test_pages import INLINE, form_of, text_of
from tests.running import until

pytestmark = pytest.mark.usefixtures("sale")

PAGE, BUY = "/flash-sales/sneaker", "/flash-sales/sneaker/buy"


@pytest.fixture
def sale(sneaker: Product) -> FlashSale:
    return announced(sneaker, starts_at=timezone.now() - timedelta(minutes=1))


def announced(product: Product, *, starts_at: datetime) -> FlashSale:
    return flashsale.announce(
        product_id=product.pk, units=1, starts_at=starts_at, ends_at=starts_at + timedelta(hours=1)
    )


def poll(client: Client, page: Any) -> Any:
    [address] = polled_by(page)
    return client.get(address)


def polled_by(page: Any) -> list[str]:
    """Where the page asks how the sale stands; a state that is not its own makes it load again."""
    html = page.text
    return [] if "data-final" in html else re.findall(r'data-sale="([^"]+)"', html)


def state_of(page: Any) -> str:
    [state] = re.findall(r'data-state="(\w+)"', page.text)
    return str(state)


def test_before_it_begins_a_clock_and_a_hidden_button(shopper: Client, client: Client, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True  # a script reads the numbers
    now = timezone.now()
    FlashSale.objects.update(starts_at=now + timedelta(minutes=61), ends_at=now + timedelta(hours=2))
    page = shopper.get(PAGE)
    html = page.text
    assert not INLINE.search(html)
    milliseconds = int(re.findall(r'data-opens-in="(\d+)"', html)[0])
    assert 0 < milliseconds <= 61 * 60_000
    assert re.search(r'role="timer"[^>]*>01:0[01]:\d\d<', html)
    assert re.search(r"<div data-after hidden>\s*<form", html)
    assert '<noscript><meta http-equiv="refresh" content="30;' in html
    assert poll(shopper, page).json()["state"] == "upcoming"
    refused = shopper.post(BUY, form_of(page, BUY))
    assert (refused.status_code, "started yet, or it" in text_of(refused)) == (409, True)
    assert "Log in now" in text_of(client.get(PAGE))
    assert f'href="{PAGE}"' in shopper.get("/products/sneaker").text


def test_what_it_cost_before_and_when_it_ends(client: Client, sale: FlashSale, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"  # without a script the page says UTC
    assert "Former price" not in text_of(client.get(PAGE))
    FlashSale.objects.update(former_price_minor=39900)
    shown = text_of(client.get(PAGE))
    assert "¥299.00 Former price ¥399.00" in shown
    assert f"Sale ends {sale.ends_at:%-d %b %Y, %H:%M} UTC" in shown
    chinese = text_of(client.get(PAGE, headers={"Accept-Language": "zh-CN"}))
    assert f"{sale.ends_at:%Y年%-m月%-d日 %H:%M} UTC" in chinese


def test_two_tabs_and_who_comes_too_late(
    shopper: Client, demo: User, other: User, django_assert_num_queries: Any
) -> None:
    late = Client()
    late.force_login(other)
    tabs = [form_of(shopper.get(PAGE), BUY) for _ in range(2)]
    late_page = late.get(PAGE)
    assert "Left: 1 / 1" in text_of(late_page)
    assert "In line so far" not in text_of(late_page), "nobody waits while there is one for each"
    assert shopper.post(BUY, tabs[0]).status_code == 302
    again = shopper.post(BUY, tabs[1])
    assert (again.status_code, "You got one!" in text_of(again)) == (409, True)

    refused = late.post(BUY, form_of(late_page, BUY))
    assert (refused.status_code, 'role="alert"' in refused.text) == (409, True)
    assert "Your place in line: 2 " in text_of(refused)
    assert "Items from unpaid orders come back." in text_of(refused)
    assert "In line so far: 2" in text_of(refused)
    with django_assert_num_queries(0):
        states = poll(late, late_page)
    assert states.json() == {"state": "soldout", "units": 1, "left": 0, "arrivals": 2, "place": 2}
    assert "no-store" in states["Cache-Control"]

    lifecycle.cancel(order_id=Order.objects.get().pk, user_id=demo.pk)
    replayed = late.post(BUY, form_of(late_page, BUY))  # the same refusal, on a page of now, with a fresh form
    assert (replayed.status_code, replayed["Idempotent-Replayed"]) == (409, "true")
    assert late.post(BUY, form_of(replayed, BUY)).status_code == 302
    assert FlashSalePurchase.objects.get(buyer=other).place == 2


def test_without_redis_it_says_what_the_database_knows(shopper: Client, client: Client) -> None:
    with override_settings(IDEMPOTENCY={"REDIS": None}):
        page = shopper.get(PAGE)
        assert poll(shopper, page).json() == {"state": "open", "units": 1, "left": 1}
        assert shopper.post(BUY, form_of(page, BUY)).status_code == 302
        assert poll(client, page).json()["state"] == "bought"  # the signed word says who asks
        assert "All taken" in text_of(client.get(PAGE))
        assert client.get(f"{PAGE}/status?who=made-up").json()["state"] == "soldout"


def test_a_buyer_after_the_end_and_in_the_next_sale(
    shopper: Client, sneaker: Product, redis_server: redis.Redis
) -> None:
    """Page and poll agree; a page that has nothing more to show does not ask."""
    waiting = shopper.get(PAGE)
    assert shopper.post(BUY, form_of(waiting, BUY)).status_code == 302
    link = f'href="/orders/{Order.objects.get().id.hex}"'

    def agreed(*, state: str, asks: bool, order: bool) -> Any:
        page = shopper.get(PAGE)
        assert (state_of(page), poll(shopper, waiting).json()["state"]) == (state, state)
        assert (bool(polled_by(page)), link in page.text) == (asks, order)
        return page

    agreed(state="bought", asks=False, order=True)
    begun = timezone.now() - timedelta(hours=2)
    FlashSale.objects.update(starts_at=begun, ends_at=begun + timedelta(hours=1))
    redis_server.flushall()
    flashsale.forget()
    page = agreed(state="ended", asks=False, order=True)
    assert "This sale is over" in text_of(page)

    following = announced(sneaker, starts_at=timezone.now() + timedelta(minutes=5))
    page = agreed(state="upcoming", asks=True, order=True)
    assert ("Sale starts in" in text_of(page), "Your order from the last sale" in text_of(page)) == (True, True)
    FlashSale.objects.filter(pk=following.pk).update(starts_at=timezone.now() - timedelta(seconds=1))
    flashsale.forget()
    page = agreed(state="open", asks=True, order=False)
    assert shopper.post(BUY, form_of(page, BUY)).status_code == 302
    agreed(state="bought", asks=False, order=False)


def test_a_buyer_whom_redis_has_lost_hears_it_and_does_not_ask(
    shopper: Client, demo: User, redis_server: redis.Redis
) -> None:
    waiting = shopper.get(PAGE)
    shopper.post(BUY, form_of(waiting, BUY))
    assert redis_server.srem(redis_server.keys("*:flash:{sneaker}:buyers")[0], demo.pk) == 1
    assert poll(shopper, waiting).json()["state"] == "open"
    page = shopper.get(PAGE)
    assert (state_of(page), polled_by(page)) == ("bought", [])


def test_polls_without_redis_read_the_database_once_a_second(
    shopper: Client, client: Client, demo: User, other: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is looked up each time; the rest is the same for all."""
    monkeypatch.setattr(looking, "SNAPSHOT_SECONDS", 3600.0)

    def statements(who: Client, page: Any) -> int:
        with CaptureQueriesContext(connection) as queries:
            states.append(poll(who, page).json()["state"])
        assert not [query for query in queries.captured_queries if '"place"' in query["sql"]], (
            "purchases of others"
        )
        return len(queries)

    states: list[str] = []
    late = Client()
    late.force_login(other)
    with override_settings(IDEMPOTENCY={"REDIS": None}):
        pages = {who: who.get(PAGE) for who in (shopper, client, late)}
        flashsale.forget()
        assert [statements(who, page) for who, page in pages.items()] == [3, 0, 1]
        assert [statements(who, page) for who, page in pages.items()] == [1, 0, 1]
        assert shopper.post(BUY, form_of(pages[shopper], BUY)).status_code == 302
        assert [statements(who, page) for who, page in pages.items()] == [3, 0, 1]
        lifecycle.cancel(order_id=Order.objects.get().pk, user_id=demo.pk)
        assert [statements(who, page) for who, page in pages.items()] == [3, 0, 1]
    assert states == ["open"] * 6 + ["bought", "soldout", "soldout"] + ["open"] * 3


def test_a_kept_picture_does_not_outlive_the_sale(
    client: Client, sneaker: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "SNAPSHOT_SECONDS", 3600.0)
    with override_settings(IDEMPOTENCY={"REDIS": None}):
        page = client.get(PAGE)
        FlashSale.objects.update(ends_at=timezone.now() + timedelta(seconds=0.3))
        flashsale.forget()
        until(lambda: poll(client, page).json()["state"] == "ended")
        announced(sneaker, starts_at=timezone.now())
        assert poll(client, page).json()["state"] == "open"


def test_after_its_end_and_where_there_is_none(shopper: Client, client: Client, mug: Product) -> None:
    now = timezone.now()
    FlashSale.objects.update(starts_at=now - timedelta(hours=2), ends_at=now - timedelta(hours=1))
    page = shopper.get(PAGE)
    assert "This sale is over" in text_of(page)
    assert 'http-equiv="refresh"' not in page.text
    product = text_of(shopper.get("/products/sneaker"))
    assert "No sale is on right now" in product
    assert "Go to the flash sale" not in product
    FlashSale.objects.update(ends_at=now + timedelta(hours=1))
    assert "Go to the flash sale" in text_of(shopper.get("/products/sneaker"))
    for address in ("/flash-sales/mug", "/flash-sales/nothing"):
        missing = client.get(address)
        assert (missing.status_code, "Browse products" in text_of(missing)) == (404, True)
        assert client.get(f"{address}/status").status_code == 404


def test_a_guest_logs_in_first_and_a_stale_form_is_renewed(client: Client, shopper: Client) -> None:
    assert client.post(BUY)["Location"] == f"/accounts/login/?next={PAGE}"
    answer = shopper.post(BUY, form_of(shopper.get(PAGE), BUY) | {"idempotency_token": "made-up"})
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert not Order.objects.exists()
