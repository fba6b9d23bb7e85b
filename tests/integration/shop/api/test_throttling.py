"""The API's limits a minute: exact over threads, before the key, answered by 429."""

from typing import Any

import pytest
import redis
from rest_framework.test import APIClient

from idempotency.models import LedgerEntry
from idempotency.observability import metrics
from payments.channels.sharing import UNSHARED
from shop.api import throttling
from shop.models import Order, Product
from tests.integration.payments.channels.conftest import counted, scripts_run
from tests.integration.shop.conftest import Caller
from tests.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)

PRODUCTS = "products"


@pytest.fixture(autouse=True)
def _a_long_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than any machine takes for a test."""
    monkeypatch.setattr(throttling, "INTERVAL_SECONDS", 3600.0)


def test_a_caller_s_limit(caller: Caller, stranger: Caller, settings: Any, redis_server: redis.Redis) -> None:
    settings.API_CALLS_PER_MINUTE = 5
    before = counted(throttling.THROTTLED)
    said = at_once(*[lambda: caller.get(PRODUCTS).status_code] * 12)
    assert sorted(said) == [200] * 5 + [429] * 7
    assert counted(throttling.THROTTLED) == before + 7
    assert stranger.get(PRODUCTS).status_code == 200


def test_the_overall_limit(caller: Caller, stranger: Caller, settings: Any, redis_server: redis.Redis) -> None:
    settings.API_CALLS_PER_MINUTE, settings.API_CALLS_PER_MINUTE_OVERALL = 4, 6
    said = at_once(*[lambda: caller.get(PRODUCTS).status_code, lambda: stranger.get(PRODUCTS).status_code] * 5)
    assert sorted(said) == [200] * 6 + [429] * 4


def test_a_refusal_says_when_to_come_back_and_burns_no_key(
    caller: Caller, mug: Product, settings: Any, redis_server: redis.Redis
) -> None:
    settings.API_CALLS_PER_MINUTE = 1
    caller.get(PRODUCTS)
    answers = [caller.get(path) for path in ("orders", f"payments/{'0' * 32}", PRODUCTS)]
    for answer in (*answers, caller.post("idempotency-tokens"), caller.order(key="k1")):
        assert (answer.status_code, answer["Content-Type"]) == (429, "application/problem+json")
        assert (answer.json()["code"], answer.json()["status"]) == ("throttled", 429)
        assert 1 <= int(answer["Retry-After"]) <= 3600
        assert f"in {answer['Retry-After']} second" in answer.json()["detail"]
    assert not LedgerEntry.objects.exists()
    settings.API_CALLS_PER_MINUTE = 100
    first, again = caller.order(key="k1"), caller.order(key="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert "Idempotent-Replayed" not in first
    assert again["Idempotent-Replayed"] == "true"
    assert Order.objects.count() == 1


def test_guests_use_up_no_share(caller: Caller, settings: Any, redis_server: redis.Redis) -> None:
    settings.API_CALLS_PER_MINUTE_OVERALL = 1
    guest = APIClient()
    assert {guest.get(f"/api/v1/{PRODUCTS}").status_code for _ in range(3)} == {401}
    assert {guest.get("/api/docs/").status_code for _ in range(3)} == {200}
    assert caller.get(PRODUCTS).status_code == 200


def test_a_call_costs_one_command(caller: Caller, redis_server: redis.Redis) -> None:
    assert scripts_run(redis_server, lambda: caller.get(PRODUCTS)) == 1


def test_without_redis_everyone_passes(caller: Caller, mug: Product, settings: Any, away: None) -> None:
    settings.API_CALLS_PER_MINUTE = 1
    before = counted(UNSHARED, what="api rate"), counted(metrics.redis_failures)
    assert [caller.get(PRODUCTS).status_code for _ in range(3)] == [200] * 3
    assert [caller.order(key="k1").status_code for _ in range(2)] == [201] * 2
    assert Order.objects.count() == 1
    after = counted(UNSHARED, what="api rate"), counted(metrics.redis_failures)
    assert after == (before[0] + 5, before[1] + 1)  # one time-out was paid, for throttle and marker together


def test_a_user_of_redis_who_lacks_a_right_keeps_nobody_away(
    caller: Caller, mug: Product, redis_server: redis.Redis
) -> None:
    before = counted(UNSHARED, what="api rate")
    redis_server.execute_command("ACL", "SETUSER", "default", "-@scripting")
    try:
        assert [caller.order(key="k1").status_code for _ in range(2)] == [201] * 2
    finally:
        redis_server.execute_command("ACL", "SETUSER", "default", "+@all")
    assert (Order.objects.count(), counted(UNSHARED, what="api rate")) == (1, before + 2)
