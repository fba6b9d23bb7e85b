"""Pairs of modes and stores that have each of both; `path` and `store` say which."""

from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
import pytest
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from rest_framework.test import APIClient

from idempotency.observability import background
from idempotency.redis import fastpath
from tests.system.stores.stores import STORES, Store
from tests.system.stores.urls import PLAN


def counted(name: str, **labels: str) -> float:
    """A counter's value, over all labels that are not given."""
    return sum(
        sample.value
        for metric in prometheus_client.REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def use(store: Store) -> Iterator[Store]:
    """The settings lead to a whole and empty `store`.

    A test that did not disturb it itself must not have seen it fail: the ledger would cover up for a marker that
    never worked (a script whose keys lie in two slots, say), and the test would prove nothing.
    """
    PLAN.clear()
    if not store.whole:
        store.mend()
    store.flush()
    store.disturbed = False
    failures = counted("idempotency_redis_failures_total")
    with store.in_force():
        yield store
    assert background.stop(seconds=30) == []  # what listens at this store; the next test has another
    fastpath.breaker.succeeded()
    assert store.disturbed or counted("idempotency_redis_failures_total") == failures


PAIRS = [
    ("/atomic", "no Redis"),
    ("/phased", "no Redis"),
    ("/phased", "Redis"),
    ("/atomic", "Redis Cluster"),
    ("/phased", "Sentinel"),
    ("/atomic", "Valkey"),
]
of_servers = pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair[1] in {*STORES} - {"no Redis"}])


@pytest.fixture(params=[pair for pair in PAIRS if pair[1] in STORES], ids=" ".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    named: tuple[str, str] = request.param
    return named


@pytest.fixture
def path(pair: tuple[str, str]) -> str:
    return pair[0]


@pytest.fixture
def store(pair: tuple[str, str], stores: Callable[[str], Store], user: User) -> Iterator[Store]:
    yield from use(stores(pair[1]))


@pytest.fixture
def user(transactional_db: None) -> User:
    # the caller's id decides at which node of a cluster a key lies
    return User.objects.create_user("ann", pk=1_000_001)


Post = Callable[..., HttpResponse]
Effects = Callable[[], int]


def posting(user: User, path: str) -> Post:
    """`post(key, body, **headers)` as this user; safe to use in many threads."""

    def post(key: str | None = "k1", body: Any = None, to: str = path, **headers: str) -> HttpResponse:
        client = APIClient(raise_request_exception=False)
        client.force_authenticate(user)
        if key is not None:
            headers["Idempotency-Key"] = key
        return client.post(to, {"name": "a"} if body is None else body, format="json", headers=headers)

    return post


@pytest.fixture
def post(user: User, path: str, store: Store) -> Post:
    return posting(user, path)


@pytest.fixture
def effects(transactional_db: None) -> Effects:
    """How many effects are committed."""
    return Group.objects.count


def is_replay_of(answer: HttpResponse, first: HttpResponse) -> bool:
    """Whether it repeats the first, is marked, and no cache may give it to another."""
    same = all(answer.get(name) == first.get(name) for name in ("Content-Type", "Location", "ETag"))
    return (
        same
        and (answer.status_code, answer.content) == (first.status_code, first.content)
        and answer.get("Idempotent-Replayed") == "true"
        and (answer.get("Cache-Control"), "Authorization" in answer.get("Vary", "")) == ("no-store", True)
    )
