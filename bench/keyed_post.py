"""A keyed POST, fresh and replayed, against the bare view: what does exactly-once cost?

All variants place the same real order (token, validation, stock, order, item) through the whole middleware stack,
in this process, on real PostgreSQL with fsync and real Redis. They take turns in short rounds, so that a slow
moment of the machine meets all of them; the figure is the median of the rounds' ratios to the bare view of the
same round.
"""

import io
import itertools
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.db import connections
from django.test.utils import override_settings
from rest_framework.authtoken.models import Token

from bench.report import write
from shop.models import Product

ROUNDS = 9
ROUND_SECONDS = 1.0
THREADS = (1, 4)
BODY = json.dumps({"items": [{"sku": "bench-mug", "quantity": 1}]}).encode()

_counter = itertools.count()
_application = WSGIHandler()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to place an order.

    Attributes:
        name: in the table.
        path: where it is posted.
        key: makes the key of each call; None for no key.
        idempotency: the `IDEMPOTENCY` setting during it.
    """

    name: str
    path: str
    key: Callable[[], str] | None
    idempotency: dict[str, Any]


def _fresh() -> str:
    return f"bench-{time.time_ns()}-{next(_counter)}"


def _replayed() -> str:
    return REPLAYED


# a new one each time: the database stays, and SECRET_KEY may be another by now
REPLAYED = _fresh()

NO_REDIS: dict[str, Any] = {"REDIS_ALIAS": None}
VARIANTS = (
    Variant("bare view, no key", "/bare/orders", None, {}),
    Variant("fresh key (Redis marker)", "/api/v1/orders", _fresh, {}),
    Variant("fresh key (no Redis)", "/api/v1/orders", _fresh, NO_REDIS),
    Variant("replay from Redis", "/api/v1/orders", _replayed, {}),
    Variant("replay from the ledger (no Redis)", "/api/v1/orders", _replayed, NO_REDIS),
)


def run() -> None:
    """Measure, and write bench/results/keyed_post.md and .png."""
    token = prepare()
    rows = []
    for threads in THREADS:
        rates: dict[str, list[float]] = {variant.name: [] for variant in VARIANTS}
        for number in range(-1, ROUNDS):
            for variant in VARIANTS:
                with override_settings(IDEMPOTENCY=variant.idempotency):
                    rate = orders_a_second(variant, token, threads)
                if number >= 0:  # the first round only warms up
                    rates[variant.name].append(rate)
            print(f"keyed_post: {threads} thread(s), round {number + 1}/{ROUNDS}", flush=True)
        bare = rates[VARIANTS[0].name]
        for variant in VARIANTS:
            ratios = [rate / base for rate, base in zip(rates[variant.name], bare, strict=True)]
            rows.append((threads, variant.name, statistics.median(rates[variant.name]), statistics.median(ratios)))
    write(
        name="keyed_post",
        title="Keyed POST of an order against the bare view",
        columns=("threads", "variant", "orders/s (median)", "ratio to bare"),
        rows=[(str(threads), name, f"{rate:.0f}", f"{ratio:.2f}") for threads, name, rate, ratio in rows],
        bars={
            f"{threads} thread(s)": [(name, ratio) for t, name, _, ratio in rows if t == threads]
            for threads in THREADS
        },
        note=f"{ROUNDS} rounds of {ROUND_SECONDS:.0f} s, variants in turn; one process, PostgreSQL with fsync.",
    )


def prepare() -> str:
    user, _ = User.objects.get_or_create(username="bench")
    token, _ = Token.objects.get_or_create(user=user)
    Product.objects.update_or_create(
        sku="bench-mug", defaults={"name": "Mug", "price_minor": 1990, "stock": 100_000_000}
    )
    return token.key


def orders_a_second(variant: Variant, token: str, threads: int) -> float:
    """Orders a second over `threads` threads."""
    stop_at = time.perf_counter() + ROUND_SECONDS
    counts = [0] * threads

    def work(index: int) -> None:
        try:
            while time.perf_counter() < stop_at:
                status = _post(variant, token)
                if status != 201:
                    raise RuntimeError(f"{variant.name} answered {status}")
                counts[index] += 1
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - started)


def _post(variant: Variant, token: str) -> int:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": variant.path,
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(BODY)),
        "HTTP_AUTHORIZATION": f"Token {token}",
        "wsgi.input": io.BytesIO(BODY),
        "wsgi.errors": io.StringIO(),
        "wsgi.url_scheme": "http",
    }
    if variant.key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = variant.key()
    statuses: list[str] = []
    response = _application(environ, lambda status, headers: statuses.append(status))
    _drain(response)
    return int(statuses[0].split()[0])


def _drain(response: Any) -> None:
    chunks: Iterator[bytes] = iter(response)
    for _ in chunks:
        pass
    response.close()
