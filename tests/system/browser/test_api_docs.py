"""The documentation of the API, in a real browser: it says what it is, follows the scheme, and fits a phone."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.running import RunningShop
from tests.system.browser.conftest import SIZES, follow, open_page
from tests.system.browser.test_accessible import is_accessible
from tests.system.browser.test_ledger_admin import fits


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desktop", "light")])
def test_an_opened_call_fits(browser: Browser, shop: RunningShop, size: str, scheme: str) -> None:
    page = open_page(browser, shop, color_scheme=scheme, **SIZES[size])
    complaints: list[str] = []
    page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
    page.goto("/api/docs/")
    expect(page).to_have_title("PayOnce API")
    assert page.locator("pre[data-quickstart]").first.is_visible()
    calls = page.locator(".opblock-summary-control")
    calls.first.wait_for()
    for method in ("get", "post"):
        page.locator(f".opblock-summary-{method} .opblock-summary-control").first.click()
        expect(page.locator(f".opblock-{method} .responses-table").first).to_be_visible()
    fits(page)
    expect(page.locator("html")).to_have_class(re.compile("dark-mode" if scheme == "dark" else "^$"))
    page.context.close()
    assert complaints == []


def test_execute_sends_the_demo_token_and_a_fresh_key_each_time(browser: Browser, shop: RunningShop) -> None:
    page = open_page(browser, shop, **SIZES["desktop"])
    page.goto("/api/docs/")
    expect(page.locator(".opblock-tag").first).to_have_attribute("data-tag", "orders")
    place = page.locator("#operations-orders-orders_create")
    place.locator(".opblock-summary-control").click()
    place.get_by_role("button", name="Try it out").click()
    sent = []
    for _ in range(2):
        with page.expect_request(lambda request: request.method == "POST") as asked:
            place.get_by_role("button", name="Execute").click()
        sent.append(asked.value)
        answer = asked.value.response()
        assert answer is not None
        assert answer.status == 201, "of the demo user"
    keys = [request.headers["idempotency-key"] for request in sent]
    assert keys[0] != keys[1]

    place.locator("tr[data-param-name='Idempotency-Key'] input").fill("mine-7f0b4f579f0a6f1a7f6e3b11")
    for replayed in (None, "true"):
        with page.expect_response(lambda response: response.request.method == "POST") as answered:
            place.get_by_role("button", name="Execute").click()
        assert answered.value.headers.get("idempotent-replayed") == replayed
    page.context.close()


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desktop", "light")])
def test_the_problem_codes_are_read_on_any_device(
    browser: Browser, shop: RunningShop, size: str, scheme: str
) -> None:
    page = open_page(browser, shop, color_scheme=scheme, **SIZES[size])
    page.goto("/api/docs/")
    follow(page, page.get_by_role("link", name="all codes, and what to do"))
    expect(page.locator("#order_paid")).to_contain_text("The order is paid.")
    fits(page)
    is_accessible(page)
    page.context.close()
