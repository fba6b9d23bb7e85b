"""A ledger of ten thousand to ten million keys: cost of a fresh key and of a replay.

The rows are like 90 days of use: 100,000 callers, random keys, bytes of answers for the last day alone. A fresh
keyed order takes turns with the same order without a key, and with one in a database whose ledger stays small,
because the machine may be slower once the other is full. Replays are timed alone.
"""

import random
import statistics
import time
from collections.abc import Sequence

from django.core.management import call_command
from django.db import connection
from django.db.models import Max, Min

from bench import orders, servers
from bench.harness import options, take_turns
from bench.report import compare
from idempotency import ledger
from idempotency.models import LedgerEntry

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
CHUNK = 500_000
CALLS = 300

_FILL = """
INSERT INTO idempotency_ledgerentry (scope, key, fingerprint, mode, state, owner, request_id, fence, subject,
    response_status, response_headers, response_body, purged_at, created_at, finished_at)
SELECT 'user:' || n %% 100000 || ' POST api-orders', 'growth-' || gen_random_uuid(), sha256(n::text::bytea),
    'atomic', 'finished', 'host:1', gen_random_uuid()::text, 1, 'order:' || md5(n::text), 201,
    '{"Location": "/api/v1/orders/1", "Content-Type": "application/json"}',
    CASE WHEN age < interval '1 day' THEN convert_to(repeat('{"id": "019aa2f1c3d47a0e"}', 24), 'UTF8') END,
    CASE WHEN age >= interval '1 day' THEN now() - age + interval '1 day' END,
    now() - age, now() - age
FROM (SELECT n, (1 - n::float8 / %s) * interval '89 days' AS age FROM generate_series(%s, %s) AS n) AS numbered
"""


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/growth.*; `--most 10000000` adds the largest ledger."""
    given = options("growth", arguments, most=SIZES[-2], rounds=15)
    servers.require_own_redis()
    call_command("migrate", verbosity=0)
    orders.prepare()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE idempotency_ledgerentry CASCADE")
    with servers.on_database(servers.fresh_database("bench_growth_small")) as small:
        call_command("migrate", verbosity=0)
        orders.prepare()
        _fill(SIZES[0])

    def in_small() -> float:
        with servers.on_database(small):
            return orders.orders_a_second(orders.KEYED)

    ways = {
        "no key": lambda: orders.orders_a_second(orders.BARE),
        "fresh key": lambda: orders.orders_a_second(orders.KEYED),
        f"fresh key, {SIZES[0]:,} rows": in_small,
    }
    seen, times = {}, []
    for size in (size for size in SIZES if size <= given.most):
        _fill(size)
        seen[f"{size:,} rows"] = take_turns(f"growth, {size} rows", ways, rounds=given.rounds, warm=1)
        times.append(f"{size:,} rows: {_replay_ms():.2f} ms")
    note = f"{given.rounds} rounds of 1 s, one thread. A replay's look-up alone, {'; '.join(times)}."
    compare("growth", "The ledger's size", seen, base="no key", unit="orders", note=note)


def _fill(size: int) -> None:
    """Fill the ledger up to `size` rows, the newest last."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")  # the shop's own is for requests
        cursor.execute("SELECT count(*) FROM idempotency_ledgerentry WHERE key LIKE 'growth-%'")
        first = cursor.fetchone()[0] + 1
        while first <= size:
            last = min(first + CHUNK - 1, size)
            cursor.execute(_FILL, [size, first, last])
            print(f"growth: {last} of {size} rows", flush=True)
            first = last + 1
        cursor.execute("VACUUM ANALYZE idempotency_ledgerentry")
        cursor.execute("CHECKPOINT")
        cursor.execute("RESET statement_timeout")


def _replay_ms() -> float:
    """Read one entry after the other, of keys from the whole ledger; return the median time."""
    ends = LedgerEntry.objects.aggregate(first=Min("id"), last=Max("id"))
    wanted = random.Random(1).sample(range(ends["first"], ends["last"] + 1), CALLS)
    keys = LedgerEntry.objects.filter(id__in=wanted).values_list("scope", "key")
    taken = []
    for scope, key in list(keys):
        began = time.perf_counter()
        ledger.find(scope=scope, key=key)
        taken.append(time.perf_counter() - began)
    return 1e3 * statistics.median(taken)
