"""The basket and a sale's waiting room in a real browser; the first page's weight."""

import re
from typing import Any

from playwright.sync_api import expect

from tests.running import RunningShop
from tests.system.browser.conftest import SIZES, Visit, follow
from tests.system.browser.test_purchase import ORDER

FIRST_PAGE_BYTES_MAX = 60_000


# of one unit, to begin in ten minutes
A_SALE = """
WITH boots AS (
    INSERT INTO shop_product (sku, name, description, picture, price_minor, currency, stock, flash_only,
        version, stock_strategy, stock_segments)
    SELECT 'boots', 'Boots', '', picture, 100, 'CNY', 100, true, 1, stock_strategy, stock_segments
    FROM shop_product WHERE sku = 'sneaker' RETURNING id
)
INSERT INTO shop_flashsale (product_id, units, sold, starts_at, ends_at, version)
SELECT id, 1, 0, now() + interval '10 minutes', now() + interval '1 hour', 1 FROM boots
"""


def test_the_first_page_weighs_little(visit: Visit, shop: RunningShop) -> None:
    page = visit(**SIZES["phone"])
    requests: dict[str, Any] = {}
    page.on("requestfinished", lambda request: requests.update({request.url: request}))
    page.goto("/", wait_until="networkidle")
    sizes = {address.removeprefix(shop.url): request.sizes() for address, request in requests.items()}
    weight = sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes.values())
    assert "/" in sizes
    assert {address.rsplit(".", 1)[-1] for address in sizes} >= {"css", "js", "svg"}
    assert all(address.startswith(shop.url) for address in requests), "nothing from elsewhere"
    assert weight < FIRST_PAGE_BYTES_MAX, sizes


def test_the_basket_with_double_clicks(visit: Visit, shop: RunningShop, size: dict[str, Any]) -> None:
    with shop.database() as connection:
        (before,) = connection.execute("SELECT count(*) FROM shop_orderitem WHERE quantity = 3").fetchone() or (0,)
    page = visit(**size)
    page.goto("/products/mug")
    page.fill("#id_quantity", "2")
    page.get_by_role("button", name="Add to basket").click(click_count=2, no_wait_after=True)
    expect(page).to_have_url(re.compile("/basket$"))
    expect(page.locator(".count")).to_have_text("2")
    page.get_by_label("Quantity Enamel mug").fill("3")
    page.get_by_label("Quantity Enamel mug").press("Enter")  # updates, and does not order
    expect(page.locator(".count")).to_have_text("3")
    page.get_by_role("button", name="Log in to order").click()
    page.fill("[name=username]", "demo")
    page.fill("[name=password]", "demo")
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(re.compile("/basket$"))
    page.get_by_role("button", name="Place order").click(click_count=2, no_wait_after=True)
    expect(page).to_have_url(ORDER)
    expect(page.locator(".count")).to_have_count(0)
    expect(page.locator(".item-quantity")).to_have_text("3 × ¥19.90")
    page.go_back()
    expect(page.get_by_text("Your basket is empty.")).to_be_visible()
    with shop.database() as connection:
        (mine,) = connection.execute("SELECT count(*) FROM shop_orderitem WHERE quantity = 3").fetchone() or (0,)
    assert mine == before + 1


def test_the_waiting_room_opens_by_itself_and_names_late_buyers(visit: Visit, shop: RunningShop) -> None:
    with shop.database() as connection:
        connection.execute(A_SALE)
    visitors = [visit(user, **SIZES["phone"]) for user in ("demo", "other")]
    for page in visitors:
        page.clock.install()  # the browser's; it runs, and can be put forward
        page.goto("/flash-sales/boots")
    early, late = visitors
    for page in visitors:
        page.evaluate("window.unreloaded = true")
    expect(early.get_by_role("timer")).to_be_visible()
    buy = early.get_by_role("button", name="Buy one now")
    expect(buy).not_to_be_visible()
    with shop.database() as connection:  # the server's ten minutes are over, and the browsers'
        connection.execute(
            "UPDATE shop_flashsale SET starts_at = now() - interval '1 second' FROM shop_product"
            " WHERE product_id = shop_product.id AND sku = 'boots'"
        )
    for page in visitors:
        page.clock.fast_forward("10:01")
    expect(buy).to_be_visible()
    assert early.evaluate("window.unreloaded"), "and without a reload"
    buy.click(click_count=2, no_wait_after=True)
    expect(early).to_have_url(ORDER)
    expect(early.locator(".meta")).to_contain_text("Place in line")

    expect(late.get_by_text("All taken")).to_be_visible()  # by the poll
    follow(early, early.get_by_role("link", name="Cancel this order"))
    early.get_by_role("button", name="Yes, cancel").click()
    expect(early.get_by_role("heading", name="This order is closed")).to_be_visible()
    late.get_by_role("button", name="Buy one now").click()  # it came back
    expect(late).to_have_url(ORDER)
    early.goto("/flash-sales/boots")
    expect(early.get_by_text("All taken")).to_be_visible()

    late.goto("/flash-sales/boots")
    expect(late.get_by_text("You got one!")).to_be_visible()
    asked: list[str] = []
    late.on("request", lambda request: asked.append(request.url))
    late.clock.fast_forward("00:30")
    late.reload()  # comes after what the timers would have asked
    assert not [address for address in asked if "/status" in address]
