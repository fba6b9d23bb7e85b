"""Searches and lists of large tables in the admin; none reads the whole table."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.test.utils import CaptureQueriesContext

from idempotency.admin import searching
from idempotency.models import ConsumedMessage, LedgerEntry
from idempotency.request.keys import digest_of
from tests.emptying import filled

LEDGER = "/admin/idempotency/ledgerentry/"
INBOX = "/admin/idempotency/consumedmessage/"
ROWS, NEWEST, FORGOTTEN = 20_000, 500, 40

# a few that nobody settled, the oldest of all; then number n: 100 callers, one key that two of them use, a subject and a request id of its own
FILL = f"""
INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence, response_headers,
    created_at)
SELECT 'user:1 POST things', 'lost-' || n, '', 'phased', 'uncertain', 'host:1', 'request-0', 1, '{{}}', now()
FROM generate_series(1, {FORGOTTEN}) AS n;
INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence, subject,
    response_status, response_headers, created_at, finished_at)
SELECT 'user:' || CASE n WHEN {ROWS} THEN 7 ELSE n % 100 END || ' POST things',
    'key-' || CASE n % 10000 WHEN 0 THEN 0 ELSE n END, '', 'atomic', 'finished', 'host:1', 'request-' || n, 1,
    'order:' || n, CASE n % 2 WHEN 0 THEN 201 ELSE 409 END, '{{}}', now(), now()
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO idempotency_consumedmessage (consumer, message_id)
SELECT (ARRAY['bank', 'mail', 'stock'])[1 + n % 3], 'message-' || n FROM generate_series(1, {ROWS}) AS n
"""

TABLES = ("idempotency_ledgerentry", "idempotency_consumedmessage")


@pytest.fixture(scope="module")
def tables(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Large ledger and inbox that PostgreSQL has statistics of; nothing here writes to them."""
    with django_db_blocker.unblock(), filled(FILL, TABLES):
        yield


@pytest.fixture
def operator(tables: None, db: None, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(searching, "LOOKED_AT", NEWEST)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


def pages_read(asked: CaptureQueriesContext, table: str) -> int:
    """Pages of the table and of its indexes that the statements look at, all together."""
    statements = [said["sql"] for said in asked.captured_queries if f'FROM "{table}"' in said["sql"]]
    assert statements
    plans = []
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
            (said,) = cursor.fetchone()
            plans.append((json.loads(said) if isinstance(said, str) else said)[0]["Plan"])
    return sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans)


def pages_of(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size(%s) / 8192", [table])
        return int(cursor.fetchone()[0])


def listed(client: Client, address: str, **query: str) -> list[Any]:
    """The rows of its first page; what the page asked has read a fourth of the table at most."""
    with CaptureQueriesContext(connection) as asked:
        answer = client.get(address, query)
    assert answer.status_code == 200
    found = answer.context["cl"]
    table = found.model._meta.db_table
    assert pages_read(asked, table) < pages_of(table) / 4, asked.captured_queries
    return list(found.result_list)


def numbers(rows: list[LedgerEntry]) -> list[int]:
    """Rows of `FILL`, by their request ids."""
    return [int(row.request_id.removeprefix("request-")) for row in rows]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": " key-0 "}, [20_000, 10_000]),
        ({"q": "order:77"}, [77]),
        ({"q": f"request-{ROWS - 3}"}, [ROWS - 3]),
        ({"q": "user:7 POST"}, [20_000, *range(19_907, ROWS - NEWEST, -100)]),
        ({"q": "user"}, [*range(ROWS, ROWS - 50, -1)]),
        ({"q": "key-%"}, []),
        ({"q": digest_of(scope="user:98 POST things", key="key-19998")}, [19_998]),
        ({"q": "key-0", "state": "running"}, []),
        ({"q": "key-0", "mode": "atomic"}, [20_000]),  # a filter among the newest
        ({"mode": "phased"}, []),
        ({"open": "uncertain"}, [0] * FORGOTTEN),
        ({"open": "any", "q": "lost-7"}, [0]),
        ({"o": "3"}, [*range(ROWS, ROWS - 50, -1)]),
    ],
    ids=lambda value: urlencode(value) if isinstance(value, dict) else str(len(value)),
)
def test_the_ledger(operator: Client, query: dict[str, str], found: list[int]) -> None:
    assert numbers(listed(operator, LEDGER, **query)) == found


def test_the_inbox(operator: Client) -> None:
    assert [row.consumer for row in listed(operator, INBOX, q="message-4")] == ["mail"]
    assert listed(operator, INBOX, q="message-4", consumer="stock") == listed(operator, INBOX, q="message") == []
    with CaptureQueriesContext(connection) as asked:
        assert searching.values_of(ConsumedMessage.objects.all(), "consumer") == ["bank", "mail", "stock"]
    assert pages_read(asked, "idempotency_consumedmessage") < 20


def test_the_terminal_finds_as_much(operator: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for wanted, found in (
        ("key-0", "#key-0 #key-0"),
        ("order:5", "#key-5"),
        (f"request-{ROWS - 1}", "#key-19999"),
    ):
        with CaptureQueriesContext(connection) as asked:
            call_command("idempotency", "show", wanted)
        said = capsys.readouterr().out
        assert " ".join(f"#{line.split()[-1]}" for line in said.splitlines() if line.startswith("#")) == found
        assert pages_read(asked, LedgerEntry._meta.db_table) < pages_of(LedgerEntry._meta.db_table) / 4


def test_this_measure_finds_a_search_that_reads_the_whole_table(operator: Client) -> None:
    everywhere = Q(key="key-5") | Q(request_id="key-5") | Q(subject="key-5")
    with CaptureQueriesContext(connection) as asked:
        assert len(LedgerEntry.objects.filter(everywhere).order_by("-pk")[:50]) == 1
    assert pages_read(asked, LedgerEntry._meta.db_table) >= pages_of(LedgerEntry._meta.db_table)
