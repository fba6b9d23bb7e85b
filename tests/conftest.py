"""Fixtures that every test may lean on: a clean marker store, and the real servers' addresses."""

import os
from collections.abc import Iterator

import pytest
import redis

from idempotency import marker


@pytest.fixture
def redis_server() -> Iterator[redis.Redis]:
    """The tests' own Redis, empty before and after."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=30)
    client.flushall()
    yield client
    client.flushall()
    client.close()


@pytest.fixture(autouse=True)
def _fresh_marker(request: pytest.FixtureRequest) -> None:
    """No marker of an earlier test stands in Redis, and the breaker is closed."""
    marker.breaker.succeeded()
    client = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=30)
    client.flushdb()
    client.close()
