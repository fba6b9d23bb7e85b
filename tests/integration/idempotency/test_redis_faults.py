"""Redis paused, stopped or lying: the answer stays right and comes within the client's time-outs."""

from collections.abc import Callable, Iterator

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from idempotency import marker
from idempotency.models import LedgerEntry
from tests.integration.idempotency.conftest import Caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]


@pytest.fixture
def paused(redis_server: redis.Redis) -> Iterator[None]:
    redis_server.client_pause(timeout=2_000)
    yield
    redis_server.ping()  # answers when the pause is over; nothing can end it earlier


def test_paused_redis_costs_one_time_out_and_then_nothing(
    caller: Caller, effects: Effects, paused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    original = marker.get_redis_connection

    def counting(alias: str) -> object:
        asked.append(1)
        return original(alias)

    monkeypatch.setattr(marker, "get_redis_connection", counting)
    with override_settings(IDEMPOTENCY={"BREAKER_SECONDS": 60}):
        first = caller.post()
        again = caller.post()
    assert (first.status_code, again.content) == (201, first.content)
    assert effects() == 1
    assert len(asked) == 1  # the breaker kept every later command away


def test_stopped_redis_is_like_no_redis(caller: Caller, effects: Effects) -> None:
    caches = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
            "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 0.2, "SOCKET_TIMEOUT": 0.2},
        }
    }
    with override_settings(CACHES=caches):
        assert not marker.ping()
        assert caller.post().content == caller.post().content
    assert effects() == 1


def test_a_marker_that_lies_running_does_not_hide_the_answer(
    caller: Caller, effects: Effects, redis_server: redis.Redis
) -> None:
    first = caller.post()
    (name,) = redis_server.keys("idempotency:*")
    entry = LedgerEntry.objects.get()
    redis_server.set(name, b"R" + bytes(entry.fingerprint).hex().encode() + b":elsewhere")
    assert caller.post().content == first.content
    redis_server.set(name, b"R" + b"00" * 32 + b":elsewhere")
    assert caller.post().status_code == 422
    redis_server.set(name, b"not ours")
    assert caller.post().content == first.content
    assert effects() == 1


def test_a_running_marker_of_a_dead_process_is_409_until_it_expires(
    caller: Caller, effects: Effects, redis_server: redis.Redis
) -> None:
    first = caller.post(key="other")
    (name,) = redis_server.keys("idempotency:*")
    redis_server.set(name, redis_server.get(name) or b"")
    entry = LedgerEntry.objects.get()
    marker_value = b"R" + bytes(entry.fingerprint).hex().encode() + b":dead"
    LedgerEntry.objects.all().delete()
    redis_server.set(name, marker_value, px=60_000)
    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 0.1}):
        waited = caller.post(key="other")
    assert (waited.status_code, waited.json()["code"]) == (409, "idempotency_in_progress")
    redis_server.delete(name)
    assert caller.post(key="other").status_code == first.status_code == 201


def test_what_a_request_costs(caller: Caller, redis_server: redis.Redis) -> None:
    """Round trips of the ledger itself, beside DRF (forced login: no SQL) and the handler's own two statements."""
    caller.post(key="warm-up")

    def commands() -> int:
        return int(redis_server.info("stats")["total_commands_processed"])

    def cost() -> tuple[int, int]:
        before = commands()
        with CaptureQueriesContext(connection) as captured:
            caller.post(key="k1")
        statements = [query["sql"] for query in captured.captured_queries]
        return len([sql for sql in statements if sql not in {"BEGIN", "COMMIT"}]), commands() - before - 1

    handler = 2  # permission check, insert
    assert cost() == (handler + 1, 2)  # fresh: one INSERT; SET NX and SET
    assert cost() == (1, 2)  # replay: only the permission check; SET NX and GET
