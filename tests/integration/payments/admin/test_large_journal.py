"""Searches and filters of a large journal, and of as many facts: none of them reads the whole table."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from idempotency.admin import searching
from payments.reconciliation.bill_lines import unlisted
from tests.emptying import filled, plan_of
from tests.integration.idempotency.admin.test_searching import pages_of, pages_read

ROWS, NEWEST = 40_000, 200
NUMBER = "00000000-0000-7000-8000-000000000001"

# number n: a payment of 1 fen by Alipay, a hundredth of a day before the next, booked a tenth of a second before it, the last
# an hour ago; the first one alone is held
FILL = f"""
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO payments_payment (id, order_id, amount_minor, currency, status, paid_minor, refunded_minor,
    reserved_minor, version, updated_at)
VALUES ('{NUMBER}', '{NUMBER}', 1, 'CNY', 'succeeded', 1, 0, 0, 1, now());
INSERT INTO payments_attempt (id, payment_id, channel, method, merchant, amount_minor, currency, status, description,
    reference, next_action_type, next_action_url, next_action_params, payer, message, query_count, expires_at)
VALUES ('{NUMBER}', '{NUMBER}', 'alipay', 'page', 'm', 1, 'CNY', 'succeeded', '', '', '', '', '{{}}', '{{}}', '', 0,
    now());
INSERT INTO payments_observation (channel, merchant, provider_txn_id, kind, attempt_id, amount_minor, currency,
    out_refund_no, credited, source, occurred_at, observed_at)
SELECT 'alipay', 'm', 'txn-' || n, 'paid', '{NUMBER}', 1, 'CNY', '', true, 'query',
    now() - make_interval(secs => 864 * ({ROWS} - n)), now()
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO payments_journalentry (observation_id, kind, created_at)
SELECT id, 'moved', now() - make_interval(secs => 3600 + ({ROWS} - row_number() OVER (ORDER BY id)) / 10.0)
FROM payments_observation ORDER BY id;
INSERT INTO payments_journalline (entry_id, account, amount_minor, currency)
SELECT e.id, CASE WHEN side < 0 THEN 'provider:alipay:m' WHEN n = 1 THEN 'held' ELSE 'orders' END, -side, 'CNY'
FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM payments_journalentry) e, (VALUES (-1), (1)) v (side)
ORDER BY e.id;
COMMIT
"""
TABLES = ("payments_observation", "payments_journalentry", "payments_journalline")


@pytest.fixture
def journal(transactional_db: None) -> Iterator[None]:
    with filled(FILL, TABLES):
        yield


@pytest.fixture
def operator(journal: None, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(searching, "LOOKED_AT", NEWEST)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


def test_the_facts_of_a_day_have_an_index(journal: None) -> None:
    account: Any = SimpleNamespace(channel="alipay", merchant="m", zone=UTC)
    with CaptureQueriesContext(connection) as asked:
        assert len(unlisted(account, datetime.now(UTC).date() - timedelta(days=50), ())) == 100
    assert "observation_by_time" in plan_of(asked.captured_queries[0]["sql"])


def test_the_list_of_anomalies_has_an_index_of_its_order(transactional_db: None) -> None:
    resolved = f"""INSERT INTO payments_anomaly (kind, channel, reference, detail, resolution, resolved_at)
        SELECT 'unknown_trade', 'alipay', n, '{{}}', '', now() - make_interval(secs => n)
        FROM generate_series(1, {ROWS}) AS n"""
    with filled(resolved, ("payments_anomaly",)):
        client = Client()
        client.force_login(User.objects.create_superuser("boss"))
        for state in ("settled", "all"):
            with CaptureQueriesContext(connection) as asked:
                client.get("/admin/payments/anomaly/", {"state": state})
            (listing,) = (one["sql"] for one in asked.captured_queries if "LIMIT 50" in one["sql"])
            plan = plan_of(listing)
            assert "anomaly_by_end" in plan
            assert "Sort" not in plan


def test_no_list_reads_the_whole_table(operator: Client) -> None:
    for model, query, count in (
        ("journalentry", {"kind": "counted"}, 0),
        ("journalentry", {"account": "held"}, 0),  # there is one, and it is old
        ("journalentry", {"account": "orders"}, 50),
        ("journalentry", {"booked": "1h"}, 0),
        ("journalentry", {"booked": "30d", "account": "held"}, 0),
        ("journalentry", {"booked": "24h"}, 50),
        ("journalline", {"account": "held"}, 0),
        ("journalline", {"booked": "24h", "account": "orders"}, 50),
        ("journalline", {"booked": "1h"}, 0),
        ("observation", {"q": "txn-7"}, 0),  # of an account that is not configured
        ("observation", {"q": f"txn-{ROWS}"}, 1),
        ("observation", {"kind": "refunded"}, 0),
    ):
        with CaptureQueriesContext(connection) as asked:
            found = operator.get(f"/admin/payments/{model}/", query).context["cl"].result_list
        assert (model, query, len(found)) == (model, query, count)
        assert pages_read(asked, f"payments_{model}") < sum(map(pages_of, TABLES)) / 2, asked.captured_queries
