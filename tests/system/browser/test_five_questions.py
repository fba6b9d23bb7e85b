"""What an operator who has never seen the admin must find within three clicks of its start page."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from shop.devserver.plan import Plan, complete
from tests import readymade
from tests.running import RunningShop, until
from tests.sandbox import ROOT
from tests.system.browser.conftest import control, follow
from tests.system.browser.test_ledger_admin import fits, operator, used_thrice
from tests.system.browser.test_payment_admin import api, opened

__all__ = ["api", "operator"]

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
    payment, key = opened(api), {"Idempotency-Key": uuid4().hex}
    payment = api.post(
        f"/api/v1/orders/{payment['order']}/payment", json={"channel": "alipay"}, headers=key
    ).json()
    control(shop, "faults", {"pay_closed": True})  # the second one was on its way by then
    for attempt in payment["attempts"]:
        control(shop, "pay", {"out_trade_no": attempt["out_trade_no"]})
    control(shop, "faults", {"pay_closed": False})
    until(lambda: len(api.get(f"/api/v1/payments/{payment['id']}").json()["attempts"]) == 2)
    reader = Reader(operator)

    def told() -> bool:
        operator.reload()
        return operator.locator(".payments-story").get_by_text("Charged twice").is_visible()

    reader.find(payment["order"][-6:].upper())
    until(told)
    expect(operator.locator(".payments-story")).to_contain_text(
        re.compile(r"Charged twice: 19\.90 CNY by \w+ at [\d:]+")
    )


@pytest.fixture
def uncertain(shop: RunningShop, api: httpx.Client) -> Iterator[dict[str, Any]]:
    """A payment whose provider's answer was lost, and which does not answer now."""
    control(shop, "faults", {"timeout_after_success": 1})
    try:
        made = opened(api, answered=202)
        control(shop, "faults", {"http_500_rate": 1})
        yield made
    finally:
        control(shop, "faults", {"http_500_rate": 0, "timeout_after_success": False})


def test_what_is_uncertain_and_what_will_happen(operator: Page, uncertain: dict[str, Any]) -> None:
    Reader(operator)
    row = operator.locator(".payments-queue tr").filter(has_text=uncertain["order"][-6:].upper())
    expect(row).to_contain_text("asked again")


def newest_billed_day() -> date:
    """Return the newest UTC day whose bills are there at every hour: WeChat makes one by 10:00 in China."""
    return datetime.now(UTC).date() - timedelta(days=2)


def test_did_yesterdays_bill_agree(operator: Page, shop: RunningShop) -> None:
    ports = {"PORT": str(shop.port), "SANDBOX_PORT": shop.sandbox_url.rsplit(":", 1)[1]}
    plan = Plan.of({**ports, "DATA_DIR": str(shop.folder)})
    stores = {"DATABASE_URL": shop.database_url, "REDIS_URL": shop.redis_url}
    environment = complete(plan, readymade.clean_environment()) | stores
    compare = [sys.executable, "manage.py", "bills", "compare", "--day", str(newest_billed_day())]
    subprocess.run(compare, cwd=ROOT, env=environment, check=True)
    Reader(operator)
    bills = operator.locator(".payments-days").last.locator("td:last-child")
    expect(bills.first).to_contain_text("agrees")


def test_who_used_this_key_and_what_they_got(operator: Page, shop: RunningShop) -> None:
    Reader(operator).find(used_thrice(shop))
    for words in ("by demo", "201: done", "“items” has another value", "got the first answer again"):
        expect(operator.locator("#content")).to_contain_text(words)


def test_refund_half_of_an_order(operator: Page, shop: RunningShop, api: httpx.Client) -> None:
    payment = opened(api)
    control(shop, "pay", {"out_trade_no": payment["attempts"][0]["out_trade_no"]})
    until(lambda: api.get(f"/api/v1/payments/{payment['id']}").json()["status"] == "succeeded")
    reader = Reader(operator)
    reader.find(payment["order"][-6:].upper())
    reader.click(operator.get_by_role("link", name="Refund", exact=True))
    operator.fill("[name=amount]", "9.95")
    operator.fill("[name=reason]", "half of it came broken")
    reader.click(operator.locator("[type=submit][value^=Give]"))
    until(lambda: api.get(f"/api/v1/payments/{payment['id']}").json()["refunded_minor"] == 995)
