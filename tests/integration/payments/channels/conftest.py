"""Real providers towards an address of the test's, and a Redis that can be taken away."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from prometheus_client import Counter

from payments.attempts import calling
from payments.channels import configured
from payments.providers.base import Provider
from tests.conftest import hanging
from tests.integration.payments.conftest import OpenAttempt, mug, new_order, open_attempt, shopper
from tests.payments_settings import changed
from tests.unit.payments.providers.conftest import Answer, Company, company, unpaid
from tests.unit.payments.providers.conftest import channels as channels_at

__all__ = ["OpenAttempt", "company", "mug", "new_order", "open_attempt", "shopper"]

SECONDS = 30.0  # whatever is waited for longer does not come


@pytest.fixture
def channels(platform: Any, company: Company, settings: Any) -> Iterator[None]:
    """Both channels, built as the project builds them."""
    settings.PAYMENTS = changed(PROVIDERS=channels_at(company))
    configured.forget()
    company.answer = unpaid(company)
    yield
    configured.forget()


@pytest.fixture
def wechat(channels: None) -> Provider:
    return calling.provider("wechat")


@pytest.fixture(params=["gone", "hanging"])
def away(request: pytest.FixtureRequest, settings: Any, redis_server: redis.Redis) -> Iterator[None]:
    """Redis is gone, or does not answer. It is asked once; then the breaker stays open."""
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "BREAKER_SECONDS": 3600}
    if request.param == "hanging":
        with hanging(redis_server):
            yield
        return
    cache = settings.CACHES["default"]
    settings.CACHES = {"default": {**cache, "LOCATION": "redis://127.0.0.1:1/0"}}
    yield


class Desk:
    """At the provider's address: each call that arrives stays until it is let go."""

    def __init__(self, company: Company) -> None:
        self._answer = company.answer
        self._arrived = threading.Semaphore(0)
        self._let_go = threading.Semaphore(0)
        self._guard = threading.Lock()
        self.here = self.most = 0
        company.answer = self._keep

    def _keep(self, body: bytes) -> Answer:
        with self._guard:
            self.here += 1
            self.most = max(self.most, self.here)
        self._arrived.release()
        assert self._let_go.acquire(timeout=SECONDS)
        with self._guard:
            self.here -= 1
        return self._answer(body)

    def arrived(self, calls: int) -> None:
        for _ in range(calls):
            assert self._arrived.acquire(timeout=SECONDS)

    def let_go(self, calls: int) -> None:
        self._let_go.release(calls)


@pytest.fixture
def desk(company: Company, channels: None) -> Iterator[Desk]:
    made = Desk(company)
    yield made
    made.let_go(1000)


def counted(counter: Counter, **labels: str) -> float:
    samples = [sample for metric in counter.collect() for sample in metric.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total") and sample.labels == labels)


def scripts_run(server: redis.Redis, work: Callable[[], Any]) -> int:
    """How many scripts `work` has Redis run; it subscribes to nothing."""
    work()  # from now on the server knows the scripts
    server.config_resetstat()
    work()
    said = server.info("commandstats")
    assert "cmdstat_subscribe" not in said
    return sum(said.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
