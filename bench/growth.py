"""A ledger of ten thousand to ten million keys: what a fresh key, a replay, the reaper and the admin then cost.

The rows are like 90 days of use: 100,000 callers, random keys, the bytes of answers for the last day alone. A
fresh keyed POST is a whole order through the whole stack, in turns with the same order without a key and with one
in a database whose ledger stays at ten thousand rows, because the machine may be slower once the other is full.
"""

import statistics
import time
from collections.abc import Callable, Sequence

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import override_settings

from bench import keyed_post, servers
from bench.report import Panel, Table, write_lines
from idempotency import ledger
from idempotency.models import LedgerEntry

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
CHUNK = 500_000
ROUNDS = 15
CALLS = 300
PURGED_AT_ONCE = 500
BARE, FRESH = keyed_post.VARIANTS[0], keyed_post.VARIANTS[1]
SMALL, BARELY = "fresh key against 10⁴ rows", "fresh key against no key"

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


def run(options: Sequence[str] = ()) -> None:
    """Measure; `--most N` stops at a smaller ledger."""
    most = int(options[1]) if options[:1] == ["--most"] else SIZES[-1]
    servers.require_own_redis()
    call_command("migrate", verbosity=0)
    token, browser = keyed_post.prepare(), _operator()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE idempotency_ledgerentry CASCADE")
    with servers.on_database(servers.fresh_database("bench_growth_small")) as small:
        call_command("migrate", verbosity=0)
        token_of_small = keyed_post.prepare()
        _fill(SIZES[0])
    sizes = [size for size in SIZES if size <= most]
    measured: dict[int, dict[str, float]] = {}
    for size in sizes:
        _fill(size)
        against_small, against_bare = _fresh(token, small, token_of_small)
        measured[size] = {
            SMALL: against_small,
            BARELY: against_bare,
            "replay, µs": 1e6 * _median_seconds(_replays(), CALLS),
            "purge of 500 answers, ms": 1e3 * _median_seconds(_purge, 5),
            "admin's list, ms": 1e3 * _median_seconds(lambda: _page(browser, ""), 9),
            "admin's search by key, ms": 1e3 * _median_seconds(lambda: _page(browser, "?q=growth-none"), 9),
        }
        print(f"growth: {size} rows: {measured[size]}", flush=True)
    _report(measured)


def _fill(size: int) -> None:
    """Up to `size` rows, the newest last."""
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


def _fresh(token: str, small: str, token_of_small: str) -> tuple[float, float]:
    """Orders a second with a fresh key, against those in the database `small`, and against those without a key."""
    against_small, against_bare = [], []
    for _ in range(ROUNDS + 1):
        bare, fresh = (keyed_post.orders_a_second(variant, token, 1) for variant in (BARE, FRESH))
        with servers.on_database(small):
            fresh_in_small = keyed_post.orders_a_second(FRESH, token_of_small, 1)
        against_small.append(fresh / fresh_in_small)
        against_bare.append(fresh / bare)
    return statistics.median(against_small[1:]), statistics.median(against_bare[1:])


def _replays() -> Callable[[], object]:
    """Reads the entry of one random old key after the other."""
    highest = LedgerEntry.objects.order_by("-id").values_list("id", flat=True)[0]
    lowest = LedgerEntry.objects.order_by("id").values_list("id", flat=True)[0]
    step = max((highest - lowest) // (CALLS + 1), 1)
    wanted = [lowest + step * number for number in range(CALLS + 1)]
    keys = iter(list(LedgerEntry.objects.filter(id__in=wanted).values_list("scope", "key")) * 2)

    def replay() -> object:
        scope, key = next(keys)
        return ledger.find(scope=scope, key=key)

    return replay


def _purge() -> object:
    """A batch of the reaper's; the answers are as good as a day old."""
    with override_settings(IDEMPOTENCY={"BODY_SECONDS": 1}):
        return ledger.purge_bodies(limit=PURGED_AT_ONCE)


def _operator() -> Client:
    user, _ = User.objects.get_or_create(username="growth", is_staff=True, is_superuser=True)
    browser = Client()
    browser.force_login(user)
    return browser


def _page(browser: Client, query: str) -> object:
    answer = browser.get(f"/admin/idempotency/ledgerentry/{query}")
    assert answer.status_code == 200, answer.status_code
    return answer


def _median_seconds(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _report(measured: dict[int, dict[str, float]]) -> None:
    smallest = next(iter(measured.values()))
    ratios = (SMALL, BARELY)
    times = [name for name in smallest if name not in ratios]
    write_lines(
        name="growth",
        title="The ledger's size",
        tables=[
            Table(
                columns=["rows", *smallest],
                rows=[
                    [
                        f"{size:,}",
                        *(f"{found[name]:.2f}" for name in ratios),
                        *(f"{found[name]:.0f}" for name in times),
                    ]
                    for size, found in measured.items()
                ],
            )
        ],
        panels=[
            [
                Panel(
                    title="orders a second with a fresh key",
                    x_label="rows of the ledger",
                    y_label="ratio",
                    lines={
                        name.removeprefix("fresh key "): [(size, found[name]) for size, found in measured.items()]
                        for name in ratios
                    },
                    log_x=True,
                ),
                Panel(
                    title="reading, purging, looking",
                    x_label="rows of the ledger",
                    y_label="time, ratio to ten thousand rows",
                    lines={
                        name.rpartition(",")[0]: [
                            (size, found[name] / smallest[name]) for size, found in measured.items()
                        ]
                        for name in times
                    },
                    log_x=True,
                    log_y=True,
                ),
            ]
        ],
        note=(
            f"Medians; fresh key: {ROUNDS} rounds of 1 s, one thread, in turns with the same order without a key, "
            "and with the same in a database of ten thousand rows."
        ),
    )
