"""Clients under load: each buys again and again, every order under a new key."""

import threading
import time
import uuid
from collections import Counter
from typing import Any

import httpx

from tests.running import order_mug, until
from tests.system.cluster.deployment import Deployment

BUYERS = 4
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.05  # a retry's; what the answer says is for clients with more time
MAY_BE_SAID = {201, 409, 503}


class Buyers:
    """Threads that repeat each call until it is answered 201, and note every answer.

    Attributes:
        placed: key -> id of the order.
        said: how often each status was answered.
        unanswered: keys that were not answered in `PATIENCE_SECONDS`.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.placed: dict[str, str] = {}
        self.said: Counter[int] = Counter()
        self.unanswered: list[str] = []
        self._deployment = deployment
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._buy_on, daemon=True) for _ in range(BUYERS)]

    def __enter__(self) -> "Buyers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def buy_more(self, count: int) -> None:
        """Wait until so many more orders are answered."""
        wanted = len(self.placed) + count
        until(lambda: len(self.placed) >= wanted or self.unanswered, PATIENCE_SECONDS)

    def settle(self) -> None:
        """Every answer still stands, each key has one order and nothing else was made.

        Raises:
            AssertionError: one of it is not so.
        """
        assert not self.unanswered
        assert set(self.said) <= MAY_BE_SAID, self.said
        assert len(set(self.placed.values())) == len(self.placed)
        with self._deployment.api() as client:
            for key, order in list(self.placed.items())[:: max(1, len(self.placed) // 40)]:
                again = order_mug(client, key)
                assert (again.status_code, again.json()["id"]) == (201, order)
                assert again.headers["Idempotent-Replayed"] == "true"
            assert _orders(client) == set(self.placed.values())

    def _buy_on(self) -> None:
        with self._deployment.api() as client:
            while not self._stop.is_set() and not self.unanswered:
                self._buy(client, uuid.uuid4().hex)

    def _buy(self, client: httpx.Client, key: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = order_mug(client, key)
            except httpx.RemoteProtocolError:  # its process was killed in the middle of the answer
                continue
            self.said[answer.status_code] += 1
            if answer.status_code == 201:
                self.placed[key] = answer.json()["id"]
                return
            assert answer.status_code not in MAY_BE_SAID or int(answer.headers["Retry-After"]) >= 1
            time.sleep(PAUSE_SECONDS)
        self.unanswered.append(key)


def _orders(client: httpx.Client) -> set[str]:
    """All of them, a page at a time."""
    found: set[str] = set()
    url: str | None = "/api/v1/orders"
    while url:
        page = client.get(url).json()
        found |= {order["id"] for order in page["results"]}
        url = page["next"]
    return found
