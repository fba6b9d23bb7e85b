"""The sandbox's console in a real browser: from a switch and the shop's order number to the paid order."""

from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.running import RunningShop
from tests.system.browser.conftest import SIZES, follow, log_in, open_page
from tests.system.browser.test_accessible import is_accessible
from tests.system.browser.test_ledger_admin import fits
from tests.system.browser.test_purchase import buy, choose

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(("size", "scheme"), [("phone", "light"), ("desktop", "dark")])
def test_ten_copies_pay_an_order_once(browser: Browser, shop: RunningShop, size: str, scheme: Any) -> None:
    page = open_page(browser, shop, color_scheme=scheme, **SIZES[size])
    log_in(page)
    number = buy(page)[-6:].upper()
    choose(page, "wechat")
    expect(page.locator(".qr")).to_be_visible()
    page.goto(shop.sandbox_url)
    follow(page, page.get_by_role("button", name="Duplicate ×10"))
    expect(page.get_by_role("button", name="Duplicate ×10")).to_have_attribute("aria-pressed", "true")
    is_accessible(page)
    fits(page)
    follow(page, page.get_by_role("button", name=f"Decline Enamel mug · {number}"))
    expect(page.get_by_role("status")).to_contain_text("The bank declined it")
    is_accessible(page)
    follow(page, page.get_by_role("link", name="All trades"))
    follow(page, page.get_by_role("button", name=f"Pay Enamel mug · {number}"))
    follow(page, page.get_by_role("button", name="Duplicate ×10"))
    expect(page.get_by_role("button", name="Duplicate ×10")).to_have_attribute("aria-pressed", "false")
    follow(page, page.get_by_role("link", name="Back to the shop"))
    follow(page, page.get_by_role("link", name="Your orders"))
    follow(page, page.get_by_role("link", name=number))
    expect(page.get_by_text("You were charged once.")).to_be_visible()
    page.context.close()
