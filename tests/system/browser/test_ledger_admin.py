"""The ledger's pages of the admin in a real browser: they fit, a decision is made once."""

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


def test_an_operator_finds_and_closes_an_entry(operator: Page, uncertain: int) -> None:
    operator.goto(f"{LEDGER}statistics/")
    fits(operator)
    follow(operator, operator.locator(f"a[href$='/{uncertain}/change/']"))
    expect(operator.locator(".ledger-history")).to_contain_text("run 1 outcome unknown")
    fits(operator)
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
