"""A purchase in Chinese, each answer lost once: double clicks, reload, back, two tabs."""

import re

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.running import RunningShop
from tests.system.browser.conftest import SIZES, Visit
from tests.system.browser.test_purchase import ORDER, arrived, buy, choose, order_ids, paid_once

THANKS = "支付成功"


@pytest.fixture
def shopper(visit: Visit) -> Page:
    return visit("demo", locale="zh-CN", **SIZES["phone"])


def lose_the_answer(page: Page, path: str) -> list[int]:
    """Lose the answer to the next POST to `path`, which the server handles; its status."""
    lost: list[int] = []

    def lose(route: Route) -> None:
        if route.request.method == "POST" and not lost:
            lost.append(route.fetch(max_redirects=0).status)
            route.abort("connectionreset")
        else:
            route.fallback()

    page.route(re.compile(path), lose)
    return lost


def press_in_vain(page: Page, selector: str, *, path: str) -> None:
    """Press; the answer is lost; go back."""
    lost = lose_the_answer(page, path)
    here = page.url
    page.locator(selector).click(no_wait_after=True)
    expect(page).to_have_url(re.compile("^chrome-error:"))
    assert lost == [302]
    page.go_back()
    arrived(page, re.compile(re.escape(here)))


def test_every_answer_is_lost_once(shopper: Page, shop: RunningShop, api: httpx.Client) -> None:
    page, before = shopper, order_ids(shop)
    page.goto("/products/mug")
    press_in_vain(page, "form.buy button[data-busy]", path=r"/products/mug/buy$")
    page.locator("form.buy button[data-busy]").click(click_count=2, no_wait_after=True)
    arrived(page, ORDER)
    orders = order_ids(shop) - before
    page.reload()
    order_id = ORDER.search(page.url)[1]  # type: ignore[index]
    tab = page.context.new_page()
    tab.goto(page.url)

    page.check("form.channels [name=channel][value=alipay]", force=True)
    press_in_vain(page, "form.channels button", path=rf"/orders/{order_id}/pay$")
    # the attempt is open: the page says so, and leads on to it
    page.locator(".pay a.button").click(click_count=2, no_wait_after=True)
    arrived(page, re.compile(re.escape(f"{shop.sandbox_url}/pay/")))
    page.reload()
    page.get_by_role("button", name="支付").click(click_count=2, no_wait_after=True)
    arrived(page, ORDER)

    for each in (page, tab):
        expect(each.get_by_text(THANKS)).to_be_visible()
    page.reload()
    expect(page.get_by_text(THANKS)).to_be_visible()
    paid_once(shop, api, order_id)
    assert orders == {order_id}


def test_a_page_without_a_network_does_not_promise_to_update_itself(shopper: Page) -> None:
    buy(shopper)
    choose(shopper, "wechat")
    waiting, offline = shopper.locator(".waiting"), shopper.locator("[data-offline]")
    expect(waiting).to_be_visible()
    expect(offline).to_be_hidden()
    shopper.wait_for_load_state()  # the page is shown before its script has come, and no script comes afterwards
    shopper.context.set_offline(True)
    expect(offline).to_be_visible()
    expect(waiting).to_be_hidden()
    shopper.context.set_offline(False)
    expect(waiting).to_be_visible()
    expect(offline).to_be_hidden()
