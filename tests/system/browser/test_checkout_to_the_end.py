"""From a guest's quantity to receipt and refund, in a real browser without scripts."""

import re
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.running import RunningShop, until
from tests.system.browser.conftest import SIZES, Visit, control, follow
from tests.system.browser.test_purchase import (
    charges,
    choose,
    held_answers,
    order_ids,
    press_if_there,
    press_on,
    pressed_until,
    shown_as_paid,
)


def paid_by_code(page: Page, shop: RunningShop, api: httpx.Client, order_id: str) -> str:
    """Choose WeChat twice while it is slow, and have the sandbox pay; the attempt's number."""
    with held_answers(shop):
        choose(page, "wechat")
        expect(page.get_by_text("Confirming your payment").or_(press_on(page))).to_be_visible()
    code = page.get_by_role("img", name="QR code to pay this order in WeChat")
    pressed_until(page, code)
    assert code.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") > 300
    payment = api.get(f"/api/v1/orders/{order_id}").json()["payment"]
    (attempt,) = api.get(f"/api/v1/payments/{payment}").json()["attempts"]
    number: str = attempt["out_trade_no"]
    control(shop, "pay", {"out_trade_no": number})
    until(lambda: shown_as_paid(page, order_id))
    return number


def test_a_coupon_a_receipt_and_a_refund_without_script(
    visit: Visit, shop: RunningShop, api: httpx.Client
) -> None:
    before = order_ids(shop)
    page = visit(java_script_enabled=False, **SIZES["phone"])
    page.goto("/products/mug")
    page.fill("#id_quantity", "3")
    follow(page, page.get_by_role("button", name="Log in to buy"))
    for field in ("username", "password"):
        page.fill(f"[name={field}]", "demo")
    follow(page, page.locator("main button[type=submit]"))
    expect(page.locator("#id_quantity")).to_have_value("3")
    follow(page, page.get_by_role("button", name="Like"))
    expect(page.get_by_role("button", name="Like")).to_have_attribute("aria-pressed", "true")

    page.goto("/coupons")
    if page.get_by_role("button", name="Get it").is_visible():
        follow(page, page.get_by_role("button", name="Get it"))
    expect(page.get_by_text("Ready to use")).to_be_visible()
    page.goto("/products/mug?quantity=3")
    page.locator("form.buy button[data-busy]").click(click_count=2, no_wait_after=True)
    until(lambda: (press_if_there(press_on(page)), re.search("/orders/[0-9a-f]{32}$", page.url))[1])
    order_id = page.url.rsplit("/", 1)[1]
    follow(page, page.get_by_role("button", name="Use"))
    expect(page.locator(".discount")).to_contain_text("−¥5.97")

    number = paid_by_code(page, shop, api, order_id)
    paid = page.locator(".outcome")
    expect(paid).to_contain_text("Paid with WeChat Pay")
    transaction = paid.locator(".number").inner_text()
    (receipt,) = until(lambda: mails(shop, order_id))
    assert all(part in receipt for part in (transaction, "¥53.73", "To: demo@example.com"))

    page.get_by_text("Request a refund").click()
    page.fill("#id_amount", "5")
    follow(page, page.get_by_role("button", name="Continue"))
    expect(page.get_by_text("It goes back to WeChat Pay")).to_be_visible()
    page.get_by_role("button", name="Yes, refund").click(click_count=2, no_wait_after=True)
    until(lambda: (press_if_there(press_on(page)), page.url.endswith(order_id))[1])
    expect(page.locator(".refunds li")).to_have_count(1)
    until(lambda: charges(shop)[number]["refunded_minor"] == 500)
    assert charges(shop)[number]["charged_minor"] == 5373
    assert order_ids(shop) - before == {order_id}
    assert len(mails(shop, order_id)) == 1


def mails(shop: RunningShop, order_id: str) -> list[str]:
    """Receipts of the order, which a shop with DEBUG and no mail server writes to files."""
    written = [path.read_text() for path in Path(shop.folder, "mail").glob("*.log")]
    return [text for text in written if f"receipt.{order_id}@" in text]
