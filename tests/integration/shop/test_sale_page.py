"""The page of a flash sale: what it says before, during and after, and that pressing its button counts once."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.utils import timezone

from shop import orders
from shop.models import FlashSale, FlashSalePurchase, Order, Product
from tests.integration.shop.test_pages import INLINE, form_of

PAGE, BUY = "/flash-sales/sneaker", "/flash-sales/sneaker/buy"


@pytest.fixture
def sale(sneaker: Product) -> FlashSale:
    now = timezone.now()
    return FlashSale.objects.create(
        product=sneaker, units=1, starts_at=now - timedelta(minutes=1), ends_at=now + timedelta(hours=1)
    )


def text(response: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def poll(client: Client, page: Any) -> Any:
    return client.get(re.findall(r'data-sale="([^"]+)"', page.content.decode())[0])


def test_before_it_begins_a_clock_and_a_hidden_button(shopper: Client, client: Client, sale: FlashSale) -> None:
    now = timezone.now()
    FlashSale.objects.update(starts_at=now + timedelta(minutes=61), ends_at=now + timedelta(hours=2))
    page = shopper.get(PAGE)
    html = page.content.decode()
    assert not INLINE.search(html)
    milliseconds = int(re.findall(r'data-opens-in="(\d+)"', html)[0])
    assert 0 < milliseconds <= 61 * 60_000
    assert re.search(r'role="timer"[^>]*>01:0[01]:\d\d<', html)
    assert re.search(r"<div data-after hidden>\s*<form", html)
    assert '<noscript><meta http-equiv="refresh" content="30;' in html
    assert poll(shopper, page).json()["state"] == "upcoming"
    refused = shopper.post(BUY, form_of(page, BUY))
    assert (refused.status_code, "It has not begun, or it is over." in text(refused)) == (409, True)
    assert "Log in now" in text(client.get(PAGE))
    assert f'href="{PAGE}"' in shopper.get("/products/sneaker").content.decode()


def test_one_button_one_order_and_the_number_of_arrival(shopper: Client, sale: FlashSale) -> None:
    page = shopper.get(PAGE)
    fields = form_of(page, BUY)
    first, second = (shopper.post(BUY, fields) for _ in range(2))
    order = Order.objects.get()
    assert first["Location"] == second["Location"] == f"/orders/{order.id.hex}"
    assert second["Idempotent-Replayed"] == "true"
    assert "Place in the flash sale 1 " in text(shopper.get(first["Location"]))

    assert poll(shopper, page).json()["state"] == "bought"
    mine = shopper.get(PAGE)
    assert "Your number in the order of arrival: 1 " in text(mine)
    assert f'href="/orders/{order.id.hex}"' in mine.content.decode()
    assert BUY not in mine.content.decode()


def test_two_tabs_and_who_comes_too_late(
    shopper: Client, demo: User, other: User, sale: FlashSale, django_assert_num_queries: Any
) -> None:
    late = Client()
    late.force_login(other)
    tabs = [form_of(shopper.get(PAGE), BUY) for _ in range(2)]
    late_page = late.get(PAGE)
    assert "Left: 1 / 1" in text(late_page)
    assert shopper.post(BUY, tabs[0]).status_code == 302
    again = shopper.post(BUY, tabs[1])
    assert (again.status_code, "One is yours" in text(again)) == (409, True)

    refused = late.post(BUY, form_of(late_page, BUY))
    assert (refused.status_code, 'role="alert"' in refused.content.decode()) == (409, True)
    assert "Your number in the order of arrival: 2 " in text(refused)
    assert "Units of orders that are not paid in time come back." in text(refused)
    with django_assert_num_queries(0):
        told = poll(late, late_page)
    assert told.json() == {"state": "soldout", "units": 1, "left": 0, "arrivals": 2, "place": 2}
    assert "no-store" in told["Cache-Control"]

    orders.cancel(order_id=Order.objects.get().pk, user_id=demo.pk)
    replayed = late.post(BUY, form_of(late_page, BUY))  # the same refusal, on a page of now, with a fresh form
    assert (replayed.status_code, replayed["Idempotent-Replayed"]) == (409, "true")
    assert late.post(BUY, form_of(replayed, BUY)).status_code == 302
    assert FlashSalePurchase.objects.get(buyer=other).place == 2


def test_without_redis_it_says_what_the_database_knows(shopper: Client, client: Client, sale: FlashSale) -> None:
    with override_settings(IDEMPOTENCY={"REDIS_ALIAS": None}):
        page = shopper.get(PAGE)
        assert poll(shopper, page).json() == {"state": "open", "units": 1, "left": 1}
        assert shopper.post(BUY, form_of(page, BUY)).status_code == 302
        assert poll(client, page).json()["state"] == "bought"  # the signed word says who asks
        assert "Every unit is taken" in text(client.get(PAGE))
        assert client.get(f"{PAGE}/status?who=made-up").json()["state"] == "soldout"


def test_after_its_end_and_where_there_is_none(
    shopper: Client, client: Client, sale: FlashSale, mug: Product
) -> None:
    now = timezone.now()
    FlashSale.objects.update(starts_at=now - timedelta(hours=2), ends_at=now - timedelta(hours=1))
    page = shopper.get(PAGE)
    assert "This sale is over" in text(page)
    assert 'http-equiv="refresh"' not in page.content.decode()
    for address in ("/flash-sales/mug", "/flash-sales/nothing"):
        missing = client.get(address)
        assert (missing.status_code, "See what we have" in text(missing)) == (404, True)
        assert client.get(f"{address}/status").status_code == 404


def test_a_guest_logs_in_first_and_a_stale_form_is_renewed(
    client: Client, shopper: Client, sale: FlashSale
) -> None:
    assert client.post(BUY)["Location"] == f"/accounts/login/?next={PAGE}"
    answer = shopper.post(BUY, form_of(shopper.get(PAGE), BUY) | {"idempotency_token": "made-up"})
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert not Order.objects.exists()
