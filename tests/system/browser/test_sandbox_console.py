"""The sandbox's console in a real browser: from an order's number to the paid order."""

from playwright.sync_api import Page, expect

from tests.running import RunningShop, until
from tests.system.browser.conftest import fits, follow, is_accessible
from tests.system.browser.test_purchase import buy, choose, pressed_until, shown_as_paid


def test_ten_copies_pay_an_order_once(page: Page, shop: RunningShop) -> None:
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


def test_a_declined_card_leaves_the_order_payable(page: Page, shop: RunningShop) -> None:
    order_id = buy(page, clicks=1)
    page.check("form.channels [name=channel][value=stripe]", force=True)
    page.locator("form.channels button").click()
    pay = page.get_by_role("button", name="Pay ¥19.90")
    pressed_until(page, pay)
    for number, sentence in (
        ("4000 0000 0000 0002", "The bank declined it. Nothing was charged"),
        ("4000 0000 0000 9995", "There is not enough money on this card."),
    ):
        page.get_by_label("Card number").fill(number)
        follow(page, pay)
        expect(page.get_by_role("status")).to_contain_text(sentence)
        fits(page)
    is_accessible(page)
    follow(page, page.get_by_role("link", name="4242 4242 4242 4242"))
    pay.click()
    page.wait_for_url(f"**/orders/{order_id}**")
    until(lambda: shown_as_paid(page, order_id))
    expect(page.get_by_text("You were charged once.")).to_be_visible()
