"""Payments in the admin, in a real browser: every page fits, a refund is made once, an anomaly gets settled."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.running import RunningShop, until
from tests.system.browser.conftest import control, follow
from tests.system.browser.test_ledger_admin import at_each_size, fits, operator  # noqa: F401  the same person, the same demand

ADMIN = "/admin/payments"
LISTS = (
    *("payment", "attempt", "refund", "observation", "notification", "anomaly", "paymentevent"),
    *("delivery", "journalentry", "journalline"),
)
OTHER_LISTS = ("shop/order", "shop/product", "shop/flashsale", "idempotency/ledgerentry")


@pytest.fixture
def api(shop: RunningShop) -> Iterator[httpx.Client]:
    client = shop.api()
    yield client
    client.close()


def opened(api: httpx.Client, *, answered: int = 201) -> dict[str, Any]:
    """The payment of an order of a mug, as the API tells it; nobody has paid."""

    def post(path: str, body: dict[str, Any], status: int) -> dict[str, Any]:
        answer = api.post(path, json=body, headers={"Idempotency-Key": uuid4().hex})
        assert answer.status_code == status, answer.text
        told: dict[str, Any] = answer.json()
        return told

    order = post("/api/v1/orders", {"items": [{"sku": "mug", "quantity": 1}]}, 201)
    return post(f"/api/v1/orders/{order['id']}/payment", {"channel": "wechat"}, answered)


def buy(api: httpx.Client, shop: RunningShop, *, faults: dict[str, Any]) -> dict[str, Any]:
    """A mug bought and paid under these faults of the provider; the payment as the API tells it."""
    payment = opened(api)
    number = payment["attempts"][0]["out_trade_no"]
    control(shop, "faults", faults)
    try:
        control(shop, "pay", {"out_trade_no": number})
        until(lambda: notified(shop, number))
    finally:
        control(shop, "faults", dict.fromkeys(faults, False))
    return payment


def notified(shop: RunningShop, number: str) -> bool:
    query = "SELECT count(*) FROM payments_notification WHERE out_trade_no = %s AND processed_at IS NOT NULL"
    with shop.database() as connection:
        found = connection.execute(query, [number]).fetchone()
    return found is not None and found[0] > 0


def resolved(shop: RunningShop, payment_id: str) -> bool:
    query = "SELECT count(*) FROM payments_anomaly WHERE payment_id = %s AND resolved_at IS NOT NULL"
    with shop.database() as connection:
        return connection.execute(query, [payment_id]).fetchone() == (1,)


@pytest.fixture
def payment(api: httpx.Client, shop: RunningShop) -> dict[str, Any]:
    return buy(api, shop, faults={})


@pytest.fixture
def anomaly(api: httpx.Client, shop: RunningShop) -> int:
    """Of a payment in another amount, whose money went back; open again for a person. Its row's id."""
    made = buy(api, shop, faults={"wrong_amount": True})
    until(lambda: resolved(shop, made["id"]))
    with shop.database() as connection:
        found = connection.execute(
            "UPDATE payments_anomaly SET resolved_at = NULL, resolution = '' WHERE payment_id = %s RETURNING id",
            [made["id"]],
        ).fetchone()
    assert found is not None
    return int(found[0])


def rows_of(page: Page, payment: dict[str, Any], history: str) -> list[str]:
    """The payment's page is opened; from its history, the address of a row of each kind."""
    page.goto(f"{ADMIN}/payment/?q={payment['id']}")
    follow(page, page.locator("#result_list tbody a").first)
    expect(page.locator(".payments-history")).to_contain_text(history)
    addresses = page.locator(".payments-history a").evaluate_all("links => links.map(link => link.pathname)")
    return sorted({address.split("/")[3]: address for address in addresses}.values())


def shows_whole_list(page: Page) -> None:
    """On a desktop no column is cut; on a phone the list may be scrolled, and fades where it goes on."""
    for _ in at_each_size(page):
        results = page.locator("#changelist .results")
        width, room, fades = results.evaluate(
            "box => [box.scrollWidth, box.clientWidth, getComputedStyle(box).maskImage !== 'none']"
        )
        assert fades or width <= room


def test_every_page_fits(operator: Page, payment: dict[str, Any], anomaly: int) -> None:  # noqa: F811
    operator.goto("/admin/")
    expect(operator.locator(".payments-queue")).to_contain_text("paid in another amount or currency")
    fits(operator)
    operator.fill("#payments-find", "demo")
    follow(operator, operator.get_by_role("button", name="Find"))
    fits(operator)
    for model in LISTS:
        operator.goto(f"{ADMIN}/{model}/")
        fits(operator)
        shows_whole_list(operator)
    for name in OTHER_LISTS:
        operator.goto(f"/admin/{name}/")
        fits(operator)
        shows_whole_list(operator)
    addresses = rows_of(operator, payment, "TRANSACTION.SUCCESS")
    fits(operator)
    assert operator.locator("#user-tools").evaluate("tools => tools.offsetHeight") < 35, "one line"
    assert len(addresses) == 6
    for address in [*addresses, f"{ADMIN}/anomaly/{anomaly}/change/"]:
        operator.goto(address)
        expect(operator.locator("#content h1")).to_be_visible()
        fits(operator)


def test_what_an_operator_did_fits(operator: Page, anomaly: int) -> None:  # noqa: F811
    operator.goto(f"{ADMIN}/anomaly/{anomaly}/resolve/")
    operator.get_by_label("Resolution").fill("The shopper was told on the phone, and has the money back.")
    operator.get_by_role("button", name="Resolve it").click()
    follow(operator, operator.get_by_role("link", name="History"))
    expect(operator.locator(".ledger-history")).to_contain_text("told on the phone")
    fits(operator)
    operator.goto(f"{ADMIN}/auditentry/")
    fits(operator)
    shows_whole_list(operator)
    follow(operator, operator.locator("#result_list tbody th a").first)
    fits(operator)


def test_a_number_stands_beside_its_label(operator: Page, payment: dict[str, Any]) -> None:  # noqa: F811
    for address in rows_of(operator, payment, "TRANSACTION.SUCCESS"):
        if {"notification", "paymentevent"} & set(address.split("/")):
            operator.goto(address)
            expect(operator.locator(".field-attempts label")).to_be_visible()


def test_the_trial_balance_fits(operator: Page, payment: dict[str, Any]) -> None:  # noqa: F811
    operator.goto(f"{ADMIN}/journalentry/")
    follow(operator, operator.get_by_role("link", name="Trial balance"))
    fits(operator)
    expect(operator.locator("tfoot")).to_contain_text("0.00 CNY")
    with operator.expect_download() as download:
        operator.get_by_text("Download as CSV").click()
    assert download.value.suggested_filename.startswith("trial-balance-")


def test_a_double_click_refunds_once(
    operator: Page,  # noqa: F811
    shop: RunningShop,
    payment: dict[str, Any],
) -> None:
    operator.goto(f"{ADMIN}/payment/?q={payment['id']}")
    follow(operator, operator.locator("#result_list tbody a").first)
    follow(operator, operator.get_by_role("link", name="Refund", exact=True))
    fits(operator)
    operator.fill("[name=amount]", "five")
    operator.fill("[name=reason]", "came broken")
    follow(operator, operator.locator("[type=submit][value^=Give]"))
    expect(operator.get_by_text("Write the amount in digits, as in 19.90.")).to_be_visible()
    fits(operator)
    operator.fill("[name=amount]", "5.00")
    operator.locator("[type=submit][value^=Give]").click(click_count=2, no_wait_after=True)
    expect(operator.locator(".messagelist")).to_contain_text("Refund ")
    expect(operator.locator(".payments-history")).to_contain_text("came broken")
    fits(operator)
    with shop.database() as connection:
        made = connection.execute(
            "SELECT amount_minor FROM payments_refund WHERE payment_id = %s", [payment["id"]]
        ).fetchall()
    assert made == [(500,)]


def test_an_anomaly_is_settled_from_the_list(operator: Page, anomaly: int) -> None:  # noqa: F811
    operator.goto(f"{ADMIN}/anomaly/")
    follow(operator, operator.locator(f"#result_list a[href*='/{anomaly}/change/']").first)
    fits(operator)
    follow(operator, operator.get_by_role("link", name="Resolve", exact=True))
    fits(operator)
    operator.fill("[name=reason]", "the shopper got it back")
    operator.click("[type=submit][value^=Resolve]")
    expect(operator.locator(".messagelist")).to_contain_text("The anomaly is resolved.")
    expect(operator.get_by_role("group", name="Resolution")).to_contain_text("the shopper got it back")
    expect(operator.get_by_role("link", name="Resolve", exact=True)).to_have_count(0)
    operator.goto(f"{ADMIN}/anomaly/")
    expect(operator.locator(f"#result_list a[href*='/{anomaly}/change/']")).to_have_count(0)


def test_a_notification_is_processed_again(operator: Page, payment: dict[str, Any]) -> None:  # noqa: F811
    operator.goto(f"{ADMIN}/notification/?q={payment['attempts'][0]['out_trade_no']}")
    follow(operator, operator.locator("#result_list tbody a").first)
    fits(operator)
    follow(operator, operator.get_by_role("link", name="Process again"))
    fits(operator)
    operator.fill("[name=reason]", "to be sure")
    operator.click("[type=submit][value^=Process]")
    expect(operator.locator(".messagelist")).to_contain_text("everything in it was known; nothing changed")


def test_a_delivery_is_sent_again(operator: Page, payment: dict[str, Any]) -> None:  # noqa: F811
    operator.goto(f"{ADMIN}/delivery/?q={payment['id']}")
    row = operator.locator("#result_list tbody a").first
    expect(row).to_be_visible()
    shows_whole_list(operator)
    address = row.get_attribute("href") or ""

    def tried() -> int:
        operator.goto(address)
        return operator.locator(".field-answers").get_by_text("127.0.0.1 cannot be reached").count()

    again = operator.get_by_role("link", name="Send again")
    until(lambda: tried() and again.is_visible())  # not while a worker is just sending it
    fits(operator)
    follow(operator, again)
    fits(operator)
    operator.fill("[name=reason]", "they were away")
    operator.click("[type=submit][value^=Send]")
    expect(operator.locator(".messagelist")).to_contain_text("It is due now, and a worker sends it.")
    until(lambda: tried() > 1)


def test_the_outcome_of_an_attempt_is_told_once(operator: Page, api: httpx.Client, shop: RunningShop) -> None:  # noqa: F811
    control(shop, "faults", {"http_500_rate": 1})
    try:
        payment = opened(api, answered=202)
        number = payment["attempts"][0]["out_trade_no"]
        with shop.database() as connection:  # an hour later, in which the timer had no answer either
            connection.execute(
                "UPDATE payments_attempt SET next_query_at = NULL, submitted_at = now() - interval '1 hour'"
                " WHERE id = %s",
                [number],
            )
    finally:
        control(shop, "faults", {"http_500_rate": 0})
    operator.goto(f"{ADMIN}/payment/?q={payment['id']}")
    follow(operator, operator.locator("#result_list tbody a").first)
    follow(operator, operator.get_by_role("link", name="Record the outcome", exact=True))
    fits(operator)
    operator.get_by_label("It was paid, with").check()
    operator.fill("[name=reason]", "seen in the portal")
    follow(operator, operator.locator("[type=submit][value='Record it']"))
    expect(operator.get_by_text("Money moved, so it has a number there.")).to_be_visible()
    fits(operator)
    operator.fill("[name=number]", f"4200{uuid4().int % 10**20}")
    operator.locator("[type=submit][value='Record it']").click(click_count=2, no_wait_after=True)
    expect(operator.locator(".messagelist")).to_contain_text(number)
    expect(operator.locator(".payments-history")).to_contain_text("seen in the portal")
    expect(operator.get_by_role("link", name="Record the outcome")).to_have_count(0)
    fits(operator)
    with shop.database() as connection:
        facts = connection.execute(
            "SELECT kind, source, credited FROM payments_observation WHERE attempt_id = %s", [number]
        ).fetchall()
    assert facts == [("paid", "operator", True)]
