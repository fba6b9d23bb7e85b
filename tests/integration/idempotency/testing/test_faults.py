"""The faults of `assert_once` leave what the real ones leave."""

import uuid
from collections.abc import Callable

import pytest
import redis
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, User
from django.core.cache import caches
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings

from idempotency import views
from idempotency.models import LedgerEntry, State
from idempotency.testing.faults import at_once, dead_after_commit, redis_lost
from tests.integration.idempotency.urls import effect

pytestmark = pytest.mark.django_db(transaction=True)

HOOKS: list[str] = []


@pytest.fixture(autouse=True)
def _no_hooks() -> None:
    HOOKS.clear()


@views.idempotent
def order(request: HttpRequest) -> HttpResponse:
    transaction.on_commit(lambda: HOOKS.append("after the commit"))
    return HttpResponse(effect("order").pk, status=201)


@views.idempotent
async def order_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await Group.objects.acreate(name=f"order {uuid.uuid4()}")).pk, status=201)


@pytest.fixture(params=[order, async_to_sync(order_async)], ids=["sync", "async"])
def send(request: pytest.FixtureRequest, user: User) -> Callable[[], HttpResponse]:
    view = request.param

    def post() -> HttpResponse:
        request = RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
        request.user = user
        answer: HttpResponse = view(request)
        return answer

    return post


def values(server: redis.Redis) -> list[bytes]:
    return [server.get(name)[:1] for name in server.keys("*:key:*")]  # type: ignore[index, union-attr]


def test_a_dead_process_leaves_its_marker_and_the_commit(
    send: Callable[[], HttpResponse], redis_server: redis.Redis
) -> None:
    """As SIGKILL does: the answer is in the ledger, Redis has it as running, and nothing after the commit ran."""
    with dead_after_commit(send, has_counted=lambda: True):
        assert values(redis_server) == [b"R"]
        assert LedgerEntry.objects.get().state == State.FINISHED
        again = send()
        assert again["Idempotent-Replayed"] == "true"
    assert HOOKS == []


def test_a_call_goes_on_until_its_effects_count(send: Callable[[], HttpResponse]) -> None:
    asked: list[int] = []

    def not_yet() -> bool:
        asked.append(LedgerEntry.objects.count())
        return False

    with dead_after_commit(send, has_counted=not_yet):
        assert send()["Idempotent-Replayed"] == "true"
    assert asked == [1]


def test_a_call_that_raises_is_over() -> None:
    with dead_after_commit(lambda: 1 / 0, has_counted=lambda: True):
        assert LedgerEntry.objects.count() == 0


def test_copies_at_once_have_connections_of_their_own() -> None:
    def backend() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    found = at_once(backend, 4)
    assert len({backend(), *found}) == 5


def test_an_error_of_a_copy_is_its_answer() -> None:
    (error,) = at_once(lambda: 1 / 0, 1)
    assert isinstance(error, ZeroDivisionError)


def test_a_lost_redis_is_empty_for_the_project_too_and_nothing_is_deleted() -> None:
    memory = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(
        CACHES={name: {**memory, "LOCATION": name} for name in ("default", "sessions")},
        SESSION_ENGINE="django.contrib.sessions.backends.cached_db",
        SESSION_CACHE_ALIAS="sessions",
        IDEMPOTENCY={"REDIS": None},
    ):
        for name in ("default", "sessions"):
            caches[name].set("a", 1)
        with redis_lost():
            assert caches["default"].get("a") is None
            assert caches["sessions"].get("a") == 1  # else its user would be another one
        assert caches["default"].get("a") == 1
