"""The ledger's pages of the admin in a real browser: they fit, a decision is made once."""

import re
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.running import RunningShop
from tests.system.browser.conftest import fits, follow

LEDGER = "/admin/idempotency/ledgerentry/"


@pytest.fixture
def uncertain(shop: RunningShop) -> int:
    """Insert an uncertain entry with the longest key and one run; its row's id."""
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
    operator.check("[name=outcome][value=abandoned]")
    expect(body).to_be_hidden()  # who abandons is not asked for an answer
    operator.check("[name=outcome][value=resolved]")
    body.fill("{")
    operator.fill("[name=note]", "seen at the bank")
    operator.click("[type=submit][value^=Close]")
    expect(operator.get_by_text("This is not JSON.")).to_be_visible()
    body.fill('{"id": 9}')
    operator.click("[type=submit][value^=Close]")
    expect(operator.get_by_text("The entry is resolved")).to_be_visible()
    expect(operator.locator(".ledger-history")).to_contain_text("seen at the bank")
    fits(operator)
    follow(operator, operator.get_by_role("link", name="History"))
    expect(operator.locator("#change-history")).to_contain_text("seen at the bank")
    fits(operator)
