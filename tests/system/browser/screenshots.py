"""The pictures of README and docs, which `make screenshots` makes anew; no test of the suite."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.running import RunningShop, until
from tests.sandbox import ROOT
from tests.system.browser.conftest import SIZES, control, follow, log_in, open_page

pytestmark = pytest.mark.timeout(600)

PICTURES = ROOT / "docs" / "screenshots"


def test_the_pictures_of_the_docs(browser: Browser, shop: RunningShop) -> None:
    order_id = a_purchase(browser, shop)
    a_flash_sale(browser, shop)
    the_admin(browser, shop, order_id)


@contextmanager
def visitor(browser: Browser, shop: RunningShop, size: str, **options: Any) -> Iterator[Page]:
    """A page of a fresh visitor, in English and by day unless `options` say otherwise."""
    known = {
        "locale": "en-GB",
        "timezone_id": "Europe/London",
        "color_scheme": "light",
        "reduced_motion": "reduce",
    }
    page = open_page(browser, shop, **{**known, **SIZES[size], **options})
    yield page
    page.context.close()


def picture(page: Page, name: str, **options: Any) -> None:
    """Write docs/screenshots/`name`.png, once the page is still."""
    page.wait_for_load_state()
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled", **options)


def a_purchase(browser: Browser, shop: RunningShop) -> str:
    """Basket, code, receipt and refund on a phone; then the order is paid a second time. Its number."""
    with visitor(browser, shop, "phone") as page:
        log_in(page)
        for sku, quantity in (("mug", "2"), ("poster", "1")):
            page.goto(f"/products/{sku}")
            page.fill("#id_quantity", quantity)
            follow(page, page.get_by_role("button", name="Add to basket"))
        picture(page, "phone-basket")
        follow(page, page.get_by_role("button", name="Place order"))
        order_id = Path(page.url).name
        for channel in ("alipay", "wechat"):  # the shopper changes their mind, and pays both
            page.goto(f"/orders/{order_id}")
            page.check(f"form.channels [name=channel][value^={channel}]", force=True)
            page.locator("form.channels button").click(no_wait_after=True)
            until(lambda: len(numbers_of(shop, order_id)) == (1 if channel == "alipay" else 2))  # noqa: B023
        page.goto(f"/orders/{order_id}")
        expect(page.locator("svg.qr")).to_be_visible()
        picture(page, "phone-pay")
        numbers = numbers_of(shop, order_id)
        control(shop, "pay", {"out_trade_no": numbers["wechat"]})
        until(lambda: paid(shop, order_id))
        page.goto(f"/orders/{order_id}")
        expect(page.get_by_role("heading", name=re.compile("Paid|paid"))).to_be_visible()
        picture(page, "phone-paid")
        page.get_by_text("Request a refund").click()
        page.fill("#id_amount", "5.50")
        page.fill("[name=reason]", "One was chipped")
        follow(page, page.get_by_role("button", name="Continue"))
        picture(page, "phone-refund")
        follow(page, page.get_by_role("button", name="Yes, refund"))
    return order_id


def numbers_of(shop: RunningShop, order_id: str) -> dict[str, str]:
    """Our numbers of the order's open attempts, by channel."""
    query = (
        "SELECT channel, replace(attempt.id::text, '-', '') FROM payments_attempt AS attempt"
        " JOIN payments_payment AS payment ON payment.id = payment_id"
        " WHERE order_id = %s AND attempt.status = 'pending'"
    )
    with shop.database() as connection:
        return dict(connection.execute(query, [order_id]).fetchall())


def paid(shop: RunningShop, order_id: str) -> bool:
    with shop.database() as connection:
        found = connection.execute("SELECT status FROM shop_order WHERE id = %s", [order_id]).fetchone()
    return found == ("paid",)


def a_flash_sale(browser: Browser, shop: RunningShop) -> None:
    """The waiting room in Chinese and by night, before it opens and after all are taken."""
    night = {"locale": "zh-CN", "timezone_id": "Asia/Shanghai", "color_scheme": "dark"}
    address = "/flash-sales/sneaker"
    with visitor(browser, shop, "phone", **night) as page:
        log_in(page, "other")
        a_sale(shop, "1, sold = 0, starts_at = now() + interval '66 minutes'")
        page.goto(address)
        expect(page.get_by_role("timer")).to_be_visible()
        picture(page, "phone-flash-sale-waiting")
        a_sale(shop, "1, sold = 0, starts_at = now() - interval '1 minute'")
        with visitor(browser, shop, "phone") as early:
            log_in(early)
            early.goto(address)
            follow(early, early.get_by_role("button", name="Buy one now"))
        page.goto(address)
        page.reload()
        picture(page, "phone-flash-sale-late")


def a_sale(shop: RunningShop, changes: str) -> None:
    with shop.database() as connection:
        connection.execute(f"UPDATE shop_flashsale SET version = version + 1, units = {changes}")


def the_admin(browser: Browser, shop: RunningShop, order_id: str) -> None:
    """The desk with work, the case file of the purchase, an entry of the ledger, and its charts."""
    control(shop, "faults", {"wrong_amount": True})
    with visitor(browser, shop, "desktop") as page:
        page.goto("/admin/login/?next=/admin/")
        for field in ("username", "password"):
            page.fill(f"[name={field}]", "admin")
        follow(page, page.locator("[type=submit]"))
        picture(page, "admin-desk", full_page=True)
        page.goto(f"/admin/payments/payment/find/?q={order_id}")
        picture(page, "admin-payment", full_page=True)
        page.goto(f"/admin/idempotency/ledgerentry/?q=order:{order_id}")
        follow(page, page.locator("#result_list th a").first)
        picture(page, "admin-ledger-entry", full_page=True)
        page.goto("/admin/idempotency/ledgerentry/statistics/")
        picture(page, "admin-ledger-statistics", full_page=True)
