"""A keyed POST, fresh and replayed, against the bare view: the price of exactly-once for a whole order.

All variants place the same order (token, validation, stock, order, item) through the whole middleware stack, in
this process, on PostgreSQL with fsync and Redis.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.db import connections
from django.test import RequestFactory
from django.test.utils import override_settings
from rest_framework.authtoken.models import Token

from bench.harness import options, take_turns
from bench.report import compare
from shop.models import Product

THREADS = (1, 4)
BODY = json.dumps({"items": [{"sku": "bench-mug", "quantity": 1}]}).encode()

_counter = itertools.count()
_application = WSGIHandler()


def _fresh() -> str:
    return f"bench-{time.time_ns()}-{next(_counter)}"


# a new one each run: the database stays, and SECRET_KEY may be another by now
REPLAYED = _fresh()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to place an order; `key` makes the key of each call."""

    name: str
    path: str
    key: Callable[[], str] | None
    has_redis: bool = True


BARE = Variant("bare view, no key", "/api/bare/orders", None)
FRESH = Variant("fresh key (Redis marker)", "/api/v1/orders", _fresh)
VARIANTS = (
    BARE,
    FRESH,
    Variant("fresh key (no Redis)", "/api/v1/orders", _fresh, has_redis=False),
    Variant("replay from Redis", "/api/v1/orders", lambda: REPLAYED),
    Variant("replay from the ledger (no Redis)", "/api/v1/orders", lambda: REPLAYED, has_redis=False),
)


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/keyed.md and .png."""
    given = options("keyed", arguments, rounds=9, seconds=1.0)
    call_command("migrate", verbosity=0)
    token = prepare()
    seen = {}
    for threads in THREADS:
        ways = {
            variant.name: partial(orders_a_second, variant, token, threads, given.seconds) for variant in VARIANTS
        }
        seen[f"{threads} thread(s)"] = take_turns("keyed", ways, rounds=given.rounds, warm=1)
    note = f"{given.rounds} rounds of {given.seconds:g} s; one process, PostgreSQL with fsync."
    compare("keyed", "Keyed POST of an order", seen, base=BARE.name, unit="orders", note=note)


def prepare() -> str:
    """Make the buyer and the product; return the buyer's token."""
    user, _ = User.objects.get_or_create(username="bench")
    token, _ = Token.objects.get_or_create(user=user)
    Product.objects.update_or_create(
        sku="bench-mug", defaults={"name": "Mug", "price_minor": 1990, "stock": 100_000_000}
    )
    return str(token.key)


def orders_a_second(variant: Variant, token: str, threads: int, seconds: float = 1.0) -> float:
    """Place orders for some seconds from that many threads.

    Raises:
        RuntimeError: an order was refused.
    """
    stop_at = time.perf_counter() + seconds
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

    with override_settings(IDEMPOTENCY={} if variant.has_redis else {"REDIS_ALIAS": None}):
        workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts) / (time.perf_counter() - started)


def _post(variant: Variant, token: str) -> int:
    request = RequestFactory().post(
        variant.path, BODY, content_type="application/json", headers={"Authorization": f"Token {token}"}
    )
    if variant.key is not None:
        request.environ["HTTP_IDEMPOTENCY_KEY"] = variant.key()
    statuses: list[str] = []
    response: Any = _application(request.environ, lambda status, headers: statuses.append(status))
    for _ in response:
        pass
    response.close()
    return int(statuses[0].split()[0])
