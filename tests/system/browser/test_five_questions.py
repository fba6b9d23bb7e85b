"""A new operator finds these answers within three clicks of the admin's start page.

What is uncertain, and whether yesterday's bill agreed, the start page itself says:
tests/integration/payments/admin/test_desk.py.
"""

import re
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.running import RunningShop, open_payment, until
from tests.system.browser.conftest import at_each_size, control, fits, follow
from tests.system.browser.test_payment_admin import opened, paid

pytestmark = pytest.mark.parametrize("operator", [("phone", "dark")], indirect=True, ids="-".join)

CLICKS = 3


class Reader:
    """An operator at the desk, whose clicks are counted."""

    def __init__(self, page: Page) -> None:
        self.page, self._clicks = page, 0
        page.goto("/admin/")

    def click(self, wanted: Locator) -> None:
        self._clicks += 1
        assert self._clicks <= CLICKS
        follow(self.page, wanted)
        fits(self.page)

    def find(self, words: str) -> None:
        self.page.fill("#payments-find", words)
        self.click(self.page.get_by_role("button", name="Find"))


def test_why_was_it_charged_twice(operator: Page, shop: RunningShop, api: httpx.Client) -> None:
    payment = open_payment(api, opened(api)["order"], "alipay")
    control(shop, "faults", {"pay_closed": True})  # the second one was on its way by then
    for attempt in payment["attempts"]:
        control(shop, "pay", {"out_trade_no": attempt["out_trade_no"]})
    control(shop, "faults", {"pay_closed": False})
    until(lambda: len(api.get(f"/api/v1/payments/{payment['id']}").json()["attempts"]) == 2)
    reader = Reader(operator)

    def is_shown() -> bool:
        operator.reload()
        return operator.locator(".payments-story").get_by_text("Charged twice").is_visible()

    reader.find(payment["order"][-6:].upper())
    until(is_shown)
    expect(operator.locator(".payments-story")).to_contain_text(
        re.compile(r"Charged twice: 19\.90 CNY by \w+ at [\d:]+")
    )


def used_thrice(api: httpx.Client) -> str:
    """Send an order, its copy and another one under a key; the key, once all are logged."""
    key = uuid4().hex
    for quantity, status in ((1, 201), (1, 201), (2, 422)):
        order = {"items": [{"sku": "mug", "quantity": quantity}]}
        answer = api.post("/api/v1/orders", json=order, headers={"Idempotency-Key": key})
        assert answer.status_code == status
    until(lambda: len(api.get(f"/api/v1/idempotency-keys/{key}").json()["uses"][0]["log"]) == 3)
    return key


def test_who_used_this_key_and_what_they_got(operator: Page, api: httpx.Client) -> None:
    Reader(operator).find(used_thrice(api))
    for words in ("by demo", "201: done", "“items” has another value", "got the first answer again"):
        expect(operator.locator("#content")).to_contain_text(words)
    for _ in at_each_size(operator):
        calls = operator.locator(".ledger-calls")
        assert calls.evaluate("table => table.getBoundingClientRect().right <= innerWidth - 15")


def test_refund_half_of_an_order(operator: Page, shop: RunningShop, api: httpx.Client) -> None:
    payment = paid(api, shop)
    reader = Reader(operator)
    reader.find(payment["order"][-6:].upper())
    reader.click(operator.get_by_role("link", name="Refund", exact=True))
    give = operator.locator("[type=submit][value^=Give]")
    operator.fill("[name=amount]", "half")
    operator.fill("[name=reason]", "half of it came broken")
    follow(operator, give)
    expect(operator.get_by_text("Write the amount in digits, as in 19.90.")).to_be_visible()
    fits(operator)
    operator.fill("[name=amount]", "9.95")
    give.click(click_count=2, no_wait_after=True)
    expect(operator.locator(".messagelist")).to_contain_text("Refund ")
    expect(operator.locator(".payments-history")).to_contain_text("half of it came broken")
    until(lambda: api.get(f"/api/v1/payments/{payment['id']}").json()["refunded_minor"] == 995)
    with shop.database() as connection:
        query = "SELECT amount_minor FROM payments_refund WHERE payment_id = %s"
        assert connection.execute(query, [payment["id"]]).fetchall() == [(995,)]
