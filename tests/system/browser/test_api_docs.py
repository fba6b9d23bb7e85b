"""The documentation of the API, in a real browser: it says what it is, follows the scheme, and fits a phone."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.running import RunningShop
from tests.system.browser.conftest import SIZES, open_page
from tests.system.browser.test_ledger_admin import fits


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desktop", "light")])
def test_an_opened_call_fits(browser: Browser, shop: RunningShop, size: str, scheme: str) -> None:
    page = open_page(browser, shop, color_scheme=scheme, **SIZES[size])
    complaints: list[str] = []
    page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
    page.goto("/api/docs/")
    expect(page).to_have_title("PayOnce API")
    calls = page.locator(".opblock-summary-control")
    calls.first.wait_for()
    for method in ("get", "post"):
        page.locator(f".opblock-summary-{method} .opblock-summary-control").first.click()
        expect(page.locator(f".opblock-{method} .responses-table").first).to_be_visible()
    fits(page)
    expect(page.locator("html")).to_have_class(re.compile("dark-mode" if scheme == "dark" else "^$"))
    page.context.close()
    assert complaints == []
