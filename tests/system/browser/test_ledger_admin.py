"""The ledger's own pages in the admin, in a real browser: they fit, they are styled, and a decision is made once."""

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from idempotency.locks.engine.session import lock_key
from tests.running import RunningShop, until
from tests.system.browser.conftest import SIZES, follow, log_in, open_page

LEDGER = "/admin/idempotency/ledgerentry/"


@pytest.fixture
def operator(request: pytest.FixtureRequest, browser: Browser, shop: RunningShop) -> Iterator[Page]:
    """The admin's page on a desktop, or in the look that the test names; an error of a script or of the CSP fails it."""
    size, scheme = getattr(request, "param", ("desktop", "light"))
    page = open_page(browser, shop, color_scheme=scheme, **SIZES[size])
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    log_in(page, shop, "admin")
    page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
    yield page
    page.context.close()
    assert complaints == []


@pytest.fixture
def uncertain(shop: RunningShop) -> int:
    """An entry whose outcome nobody knows, under the longest key there is, with one run; its row's id."""
    key = uuid4().hex + "k" * 223
    with shop.database() as connection:
        found = connection.execute(
            """WITH entry AS (
                INSERT INTO idempotency_ledgerentry
                    (scope, key, fingerprint, mode, state, owner, request_id, fence, response_headers, subject)
                VALUES (%s, %s, '', 'phased', 'uncertain', 'host:1:1', '', 1, '{}', 'order:0190')
                RETURNING id
            )
            INSERT INTO idempotency_ledgerattempt (entry_id, fence, owner, request_id, outcome, ended_at)
            SELECT id, 1, 'host:1:1', %s, 'uncertain', now() FROM entry RETURNING entry_id""",
            ["user:1 POST " + "api/v1/route/" * 20, key, uuid4().hex],
        ).fetchone()
    assert found is not None
    return int(found[0])


def fits(page: Page) -> None:
    """Nothing sticks out to the side, on a phone or on a desktop."""
    for _ in at_each_size(page):
        width, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width <= room


def at_each_size(page: Page) -> Iterator[str]:
    """Have the page as wide as each device for a while."""
    before = page.viewport_size
    assert before is not None
    for name, size in SIZES.items():
        page.set_viewport_size(size["viewport"])
        yield name
    page.set_viewport_size(before)


def test_a_lock_is_shown(operator: Page, shop: RunningShop) -> None:
    name = "order:" + "7" * 200
    with shop.database() as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [lock_key(name)])
        operator.goto(LEDGER)
        follow(operator, operator.get_by_role("link", name="Locks"))
        operator.get_by_label("Name of a lock").fill(name)
        follow(operator, operator.get_by_role("button", name="Show"))
        fits(operator)
        expect(operator.locator(".ledger-hold")).to_contain_text("as long as its session")


def test_charts_fit_and_name_what_they_draw(operator: Page, shop: RunningShop, uncertain: int) -> None:
    with shop.database() as connection:
        connection.execute(
            """INSERT INTO idempotency_ledgerentry
                   (scope, key, fingerprint, mode, state, owner, request_id, fence, response_headers, subject,
                    response_status, finished_at)
               SELECT 'user:1 POST', gen_random_uuid()::text, '', 'atomic', 'finished', '', '', 1, '{}', '',
                      CASE WHEN n <= 60 THEN 201 ELSE 409 END, now()
               FROM generate_series(1, 80) AS n"""
        )
    operator.goto(f"{LEDGER}statistics/")
    fits(operator)
    expect(operator.get_by_role("img", name=re.compile(r"Executed by the hour; at most \d+"))).to_be_visible()
    # of all its hours: the shop may have been there in the one before
    bars = operator.locator("svg.ledger-chart").first.locator("rect")
    assert max(bars.evaluate_all("bars => bars.map((bar) => bar.getBoundingClientRect().height)")) > 50
    expect(operator.locator("body")).to_contain_text("refused (4xx)")
    follow(operator, operator.locator(f"a[href$='/{uncertain}/change/']"))
    expect(operator.locator(".ledger-history")).to_contain_text("run 1 outcome unknown")
    fits(operator)


def test_an_operator_closes_an_entry(operator: Page, uncertain: int) -> None:
    operator.goto(f"{LEDGER}{uncertain}/change/")
    follow(operator, operator.get_by_text("Resolve or abandon"))
    fits(operator)
    body = operator.locator("[name=body]")
    operator.check("[name=outcome][value=resolved]")
    body.fill("{")
    operator.fill("[name=note]", "seen at the bank")
    operator.click("[type=submit][value^=Close]")
    expect(operator.get_by_text("This is not JSON.")).to_be_visible()
    body.fill('{"id": 9}')
    operator.click("[type=submit][value^=Close]")
    expect(operator.get_by_text("The entry is resolved")).to_be_visible()
    expect(operator.locator(".ledger-history")).to_contain_text("seen at the bank")
    expect(operator.locator("pre.ledger-body")).to_contain_text('"id": 9')
    expect(operator.get_by_text("Resolve or abandon")).to_have_count(0)
    fits(operator)
    follow(operator, operator.get_by_role("link", name="History"))
    expect(operator.locator("#change-history")).to_contain_text("seen at the bank")
    fits(operator)


def test_who_abandons_is_not_asked_for_an_answer(operator: Page, uncertain: int) -> None:
    operator.goto(f"{LEDGER}{uncertain}/decide/")
    expect(operator.locator("[name=body]")).to_be_visible()
    operator.check("[name=outcome][value=abandoned]")
    expect(operator.locator("[name=body]")).to_be_hidden()
    operator.fill("[name=note]", "the bank knows nothing")
    operator.click("[type=submit][value^=Close]")
    expect(operator.get_by_text("The entry is abandoned")).to_be_visible()


def used_thrice(shop: RunningShop) -> str:
    """Place an order, send it again, then another under the same key; the key, once its log has all of it."""
    key = uuid4().hex
    with shop.api() as api:
        for quantity, status in ((1, 201), (1, 201), (2, 422)):
            order = {"items": [{"sku": "mug", "quantity": quantity}]}
            answer = api.post("/api/v1/orders", json=order, headers={"Idempotency-Key": key})
            assert answer.status_code == status
        until(lambda: len(api.get(f"/api/v1/idempotency-keys/{key}").json()["uses"][0]["log"]) == 3)
    return key


def test_the_request_log_fits(operator: Page, shop: RunningShop) -> None:
    operator.goto(f"{LEDGER}?q={used_thrice(shop)}")
    follow(operator, operator.locator(".field-condition a"))
    calls = operator.locator(".ledger-calls")
    expect(calls).to_contain_text("“items” has another value")
    expect(operator.get_by_text("POST /api/v1/orders by demo")).to_be_visible()
    fits(operator)
    for _ in at_each_size(operator):
        assert calls.evaluate("table => table.getBoundingClientRect().right <= innerWidth - 15")
