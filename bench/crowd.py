"""Many buyers of the shop behind one wrk, which takes little of the CPU that the servers are to have."""

import itertools
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token

from bench import load
from shop.models import Product

FRESH, REPLAY, READ = "fresh", "replay", "read"
BUYERS = 32  # each with a product: one product that all want is what bench/stock.py measures
THREADS_MOST = 16
STOCK = 100_000_000
LONGEST_SECONDS = 600  # of calls that go on until they are stopped
SCRIPT = Path(__file__).parent / "capacity.lua"

# keys of this run start after those of all runs before
_runs = itertools.count(int(time.time()) & 0x0FFFFFFF)


@dataclass(frozen=True, slots=True)
class Buyer:
    """Somebody with a token, and an order that he has placed with a key."""

    token: str
    sku: str
    key: str
    order: str


class Crowd:
    """Buyers, and the web processes that they call.

    Attributes:
        heard: orders with a fresh key that were answered with 201.
        unheard_most: orders that may have been placed besides, because wrk does not wait for the last answers.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = tuple(ports)
        self.heard, self.unheard_most = BUYERS, 0
        self._buyers = [_buyer(number, self.ports[0]) for number in range(BUYERS)]

    def call(self, kind: str, *, processes: int, callers: int, seconds: int) -> dict[str, float]:
        """Call the first `processes` for some time; each of the callers calls again when it has its answer.

        Returns:
            `rate` (answers a second), `p50_ms`, `p95_ms`, `p99_ms`.

        Raises:
            RuntimeError: an answer was not 2xx, or a connection broke.
        """
        command = self._command(kind, callers, seconds)
        done = subprocess.run(
            command, env=self._environment(processes), capture_output=True, text=True, check=True
        )
        figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if failed := figures["refused"] + figures["broken"]:
            raise RuntimeError(f"{kind}: {failed} of {figures['requests']} calls failed; see .data/bench-logs")
        if kind == FRESH:
            self.heard += figures["requests"]
            self.unheard_most += callers
        times = {name: figures[name] for name in ("p50_ms", "p95_ms", "p99_ms")}
        return {"rate": figures["requests"] / figures["seconds"], **times}

    @contextmanager
    def calling(self, kind: str, *, processes: int, callers: int) -> Iterator[None]:
        """They call until the end of the block."""
        command = self._command(kind, callers, LONGEST_SECONDS)
        wrk = subprocess.Popen(command, env=self._environment(processes), stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            wrk.terminate()
            wrk.wait()

    def _environment(self, processes: int) -> dict[str, str]:
        return {**os.environ, "CAPACITY_PORTS": " ".join(map(str, self.ports[:processes]))}

    def _command(self, kind: str, callers: int, seconds: int) -> list[str]:
        return [
            *(load.wrk_binary(), "--threads", str(min(callers, THREADS_MOST)), "--connections", str(callers)),
            *("--duration", f"{seconds}s", "--timeout", "10s", "--script", str(SCRIPT)),
            *(f"http://127.0.0.1:{self.ports[0]}", "--", kind, str(next(_runs))),
            *(f"{buyer.token},{buyer.sku},{buyer.key},{buyer.order}" for buyer in self._buyers),
        ]


def _buyer(number: int, port: int) -> Buyer:
    user = User.objects.create(username=f"buyer-{number}")
    token = Token.objects.create(user=user).key
    sku = f"mug-{number:02}"
    Product.objects.create(sku=sku, name="Mug", price_minor=1990, stock=STOCK)
    key = token_hex(16)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/orders",
        json.dumps({"items": [{"sku": sku, "quantity": 1}]}).encode(),
        {"Authorization": f"Token {token}", "Content-Type": "application/json", "Idempotency-Key": key},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return Buyer(token, sku, key, json.load(answer)["id"])
