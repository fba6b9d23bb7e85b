"""Payments in the admin, in a real browser: every page fits."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.running import RunningShop, open_payment, order_mug, until
from tests.system.browser.conftest import at_each_size, control, fits, follow

ADMIN = "/admin/payments"
LISTS = [
    *("payment", "attempt", "refund", "observation", "notification", "anomaly", "paymentevent", "delivery"),
    *("journalentry", "journalline", "../idempotency/ledgerentry"),
    *("../shop/order", "../shop/product", "../shop/flashsale", "../auth/user"),
]


def opened(api: httpx.Client) -> dict[str, Any]:
    """The payment of an order of a mug, as the API shows it; nobody has paid."""
    made: dict[str, Any] = open_payment(api, order_mug(api, uuid4().hex).json()["id"])
    return made


def paid(api: httpx.Client, shop: RunningShop) -> dict[str, Any]:
    """Pay for a mug, and wait until the notification is processed; the opened payment."""
    payment = opened(api)
    number = payment["attempts"][0]["out_trade_no"]
    query = "SELECT count(*) FROM payments_notification WHERE out_trade_no = %s AND processed_at IS NOT NULL"
    control(shop, "pay", {"out_trade_no": number})
    with shop.database() as connection:
        until(lambda: connection.execute(query, [number]).fetchone() != (0,))
    return payment


@pytest.fixture(scope="module")
def payment(api: httpx.Client, shop: RunningShop) -> dict[str, Any]:
    """Paid; and the worker, which makes its delivery afterwards, has made it."""
    made = paid(api, shop)
    delivery = "SELECT 1 FROM payments_delivery WHERE payment_id = %s"
    with shop.database() as connection:
        until(lambda: connection.execute(delivery, [made["id"]]).fetchone())
    return made


@pytest.fixture
def anomaly(api: httpx.Client, shop: RunningShop) -> int:
    """Reopen the anomaly of a payment in another amount, whose money went back; its id."""
    control(shop, "faults", {"wrong_amount": True})
    made = paid(api, shop)
    control(shop, "faults", {"wrong_amount": False})
    reopen = (
        "UPDATE payments_anomaly SET resolved_at = NULL, resolution = ''"
        " WHERE payment_id = %s AND resolved_at IS NOT NULL RETURNING id"
    )
    with shop.database() as connection:
        (row,) = until(lambda: connection.execute(reopen, [made["id"]]).fetchone())
    return int(row)


def rows_of(page: Page, payment: dict[str, Any]) -> list[str]:
    """The payment's page is opened; from its history, the address of a row of each kind."""
    page.goto(f"{ADMIN}/payment/?q={payment['id']}")
    follow(page, page.locator("#result_list tbody a").first)
    expect(page.locator(".payments-history")).to_contain_text("TRANSACTION.SUCCESS")
    addresses = page.locator(".payments-history a").evaluate_all("links => links.map(link => link.pathname)")
    return sorted({address.split("/")[3]: address for address in addresses}.values())


def list_fits(page: Page) -> None:
    """Nothing sticks out, no date is broken, no column is cut; a phone's list may scroll."""
    for size in at_each_size(page):
        found = page.locator("#changelist .results").evaluate(
            r"""box => [
              [document.documentElement.scrollWidth, document.documentElement.clientWidth],
              getComputedStyle(box).maskImage === "none" ? [box.scrollWidth, box.clientWidth] : [0, 0],
              ...[...box.querySelectorAll("td")].map((cell) => cell.firstChild)
                .filter((text) => text?.nodeType === Node.TEXT_NODE && /^\d{4}-\d\d-\d\d /.test(text.data))
                .map((text) => {
                  const date = new Range();
                  date.setStart(text, 0);
                  date.setEnd(text, 10);
                  return [date.getClientRects().length, 1];
                }),
            ]"""
        )
        assert all(width <= room for width, room in found), (page.url, size, found)


def test_every_page_fits(operator: Page, payment: dict[str, Any], anomaly: int) -> None:
    operator.goto("/admin/")
    expect(operator.locator(".payments-queue")).to_contain_text("paid in another amount or currency")
    fits(operator)
    operator.fill("#payments-find", "demo")
    follow(operator, operator.get_by_role("button", name="Find"))
    fits(operator)
    for name in LISTS:
        operator.goto(f"{ADMIN}/{name}/")
        list_fits(operator)
    addresses = rows_of(operator, payment)
    fits(operator)
    assert operator.locator("#user-tools").evaluate("tools => tools.offsetHeight") < 35, "one line"
    assert len(addresses) == 6
    for address in [*addresses, f"{ADMIN}/anomaly/{anomaly}/change/", f"{ADMIN}/journalentry/trial-balance/"]:
        operator.goto(address)
        expect(operator.locator("#content h1")).to_be_visible()
        fits(operator)
        if {"notification", "paymentevent"} & set(address.split("/")):  # a number stands beside its label
            expect(operator.locator(".field-attempts label")).to_be_visible()
        if "notification" in address:
            follow(operator, operator.get_by_role("link", name="Process again"))
            fits(operator)

    # of a delivery
    operator.goto(f"{ADMIN}/delivery/?q={payment['id']}")
    list_fits(operator)
    follow(operator, operator.locator("#result_list tbody a").first)
    answers = operator.locator(".field-answers")
    until(lambda: (operator.reload(), "127.0.0.1 cannot be reached" in answers.inner_text())[1])
    fits(operator)
    follow(operator, operator.get_by_role("link", name="Send again"))
    fits(operator)


def test_what_an_operator_did_fits(operator: Page, anomaly: int) -> None:
    operator.goto(f"{ADMIN}/anomaly/{anomaly}/resolve/")
    fits(operator)
    operator.fill("[name=reason]", "The shopper was called, and has the money back.")
    operator.click("[type=submit][value^=Resolve]")
    expect(operator.locator(".messagelist")).to_contain_text("The anomaly is resolved.")
    follow(operator, operator.get_by_role("link", name="History"))
    expect(operator.locator(".ledger-history")).to_contain_text("was called")
    fits(operator)
    operator.goto(f"{ADMIN}/auditentry/")
    list_fits(operator)
    follow(operator, operator.locator("#result_list tbody th a").first)
    fits(operator)
