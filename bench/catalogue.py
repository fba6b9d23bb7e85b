"""The catalogue's page from memory against the same from the database: `GET /` of a guest over HTTP.

Two gunicorns, one with `CATALOGUE_SECONDS=0`, take turns in every round. The rest of a request is the same in
both: the framework and the page's HTML.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from secrets import token_hex

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from bench import servers
from bench.plain_http import ask
from bench.report import write
from shop.models import Like, Product

ROUNDS = 7
SECONDS = 2.0
CALLERS = 4  # processes, each with a connection
SIZES = (3, 50, 500)  # products; the last is the most that the catalogue shows
LIKES = 5  # of each product
WANTED_RATIO = 3.0

DATABASE, MEMORY = "from the database", "from memory"
WAYS = {DATABASE: "0", MEMORY: "1"}

Seen = dict[tuple[int, str], list[float]]

_fork = multiprocessing.get_context("fork")


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/catalogue.*."""
    parser = argparse.ArgumentParser(prog="python -m bench catalogue")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each way in each round")
    given = parser.parse_args(arguments)
    servers.require_own_redis()
    before = os.getloadavg()[0]
    with servers.on_database(servers.fresh_database("bench_catalogue")) as database:
        seen = _measure(database, given)
    _report(seen, given, before)


def _measure(database: str, given: argparse.Namespace) -> Seen:
    seen: Seen = defaultdict(list)
    call_command("migrate", verbosity=0)
    fans = User.objects.bulk_create([User(username=f"fan-{number}") for number in range(LIKES)])
    with servers.guarded() as guardian:
        ports = {
            way: servers.start_shop(
                guardian, {"DATABASE_URL": database, "CATALOGUE_SECONDS": seconds}, name=f"catalogue-{seconds}"
            )
            for way, seconds in WAYS.items()
        }
        for size in SIZES:
            _fill(size, fans)
            for number in range(given.rounds):
                for way in sorted(WAYS, reverse=bool(number % 2)):
                    seen[size, way].append(_rate(ports[way], given.seconds, size))
            print(f"catalogue: {size} products", flush=True)
    return seen


def _fill(size: int, fans: Sequence[User]) -> None:
    more = size - Product.objects.count()
    products = Product.objects.bulk_create(
        Product(sku=token_hex(8), name="Enamel mug", price_minor=1990, stock=100) for _ in range(more)
    )
    Like.objects.bulk_create(Like(user=fan, product=product) for fan in fans for product in products)
    connection.close()
    time.sleep(1.5)  # until every process has forgotten the smaller one


def _rate(port: int, seconds: float, size: int) -> float:
    """Answers a second, to `CALLERS` at once."""
    heard = _fork.Array("q", CALLERS)
    ready = _fork.Barrier(CALLERS)
    request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    def call(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as line:
            assert ask(line, request)[1].count(b'class="card"') == size
            ready.wait()
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                status, _ = ask(line, request)
                assert status == 200
                heard[number] += 1

    callers = [_fork.Process(target=call, args=(number,)) for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
        if caller.exitcode:
            raise RuntimeError(f"a caller ended with {caller.exitcode}")
    return sum(heard) / seconds


def _report(seen: Seen, given: argparse.Namespace, load_before: float) -> None:
    ratios = {
        size: statistics.median(
            memory / database for memory, database in zip(seen[size, MEMORY], seen[size, DATABASE], strict=True)
        )
        for size in SIZES
    }
    reached = [f"{size} products" for size in SIZES if ratios[size] >= WANTED_RATIO]
    write(
        name="catalogue",
        title="The catalogue's page (GET /), from memory and from the database",
        columns=("products", "from the database/s", "from memory/s", "ratio"),
        rows=[
            [
                str(size),
                f"{statistics.median(seen[size, DATABASE]):.0f}",
                f"{statistics.median(seen[size, MEMORY]):.0f}",
                f"{ratios[size]:.2f}",
            ]
            for size in SIZES
        ],
        bars={"": [(f"{size} products", ratios[size]) for size in SIZES]},
        bases=("none",),
        x_label="requests a second, ratio to CATALOGUE_SECONDS=0",
        note=(
            f"{given.rounds} rounds of {given.seconds:g} s each, in turns; medians. gunicorn "
            f"{servers.WORKERS} × {servers.THREADS}, {CALLERS} callers on the same machine. A ratio of "
            f"{WANTED_RATIO:g} was wanted: reached with {' and '.join(reached) or 'none'}. "
            f"Load average of the machine before: {load_before:.1f}."
        ),
    )
