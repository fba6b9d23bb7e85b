"""Wait-then-replay: woken by a message, not by polling; and by the clock alone where a message is lost."""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.test import override_settings

from idempotency.functions import once
from idempotency.redis import fastpath, marker, subscriber
from idempotency.redis.connection import connection_of
from tests.integration.idempotency.conftest import Caller
from tests.integration.idempotency.urls import PLAN
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]
LONG = {"WAIT_SECONDS": 30, "MARKER_SECONDS": 30}


def first_and_copy(user: User, path: str, then: Callable[[], object]) -> list[Any]:
    """Answers of a call, and of a copy that listens while the first stands still in its handler until `then`."""
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        PLAN["during"] = None
        inside.set()
        assert go.wait(30)

    def first() -> Any:
        return Caller(user).post(path, body={"name": "a"})

    def copy() -> Any:
        assert inside.wait(30)
        return first()

    def conduct() -> Any:
        assert inside.wait(30)
        while not someone_listens():
            pass
        then()
        go.set()

    PLAN["during"] = hold
    return at_once(first, copy, conduct)[:2]


def someone_listens() -> bool:
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        return any(count for _, count in client.pubsub_numsub(*client.pubsub_channels("*:key:*")))


@pytest.mark.parametrize("path", ["/held", "/phased"])
def test_who_waits_is_woken_by_the_answer(
    user: User, effects: Effects, redis_server: redis.Redis, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    for name in ("claim", "look"):
        original = getattr(marker, name)
        monkeypatch.setattr(marker, name, lambda *a, _f=original, **k: looks.append("look") or _f(*a, **k))
    with override_settings(IDEMPOTENCY=LONG):
        first, second = first_and_copy(user, path, lambda: None)
    assert (first.status_code, second.status_code, second.content) == (201, 201, first.content)
    assert second["Idempotent-Replayed"] == "true"
    assert effects() == 1
    # the first one's own, and at most: at once, when subscribed, when woken. Nobody asked in between.
    assert len(looks) <= 4


def test_a_lost_message_costs_a_markers_life_and_no_answer(user: User, effects: Effects) -> None:
    """The connection that would have carried it is cut: the copy looks for itself."""

    def cut() -> None:
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            client.client_kill_filter(_type="pubsub")

    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 30, "MARKER_SECONDS": 0.2}):
        first, second = first_and_copy(user, "/held", cut)
    assert {first.status_code, second.status_code} == {201}
    assert effects() == 1


def test_an_answer_is_published_only_where_duplicates_wait(user: User, redis_server: redis.Redis) -> None:
    def published() -> int:
        fastpath.attempt(lambda client: connection_of(client).ask("PING"))  # after all that was not waited for
        return int(redis_server.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"])

    before = published()
    assert Caller(user).post("/held", body={"name": "a"}).status_code == 201
    assert published() == before
    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 1}):
        assert Caller(user).post("/held", key="another", body={"name": "a"}).status_code == 201
        assert published() == before + 1
    once("n", key="k").run(lambda: None)  # a copy of it says itself how long it waits
    assert published() == before + 2


def test_one_connection_serves_all_who_wait(redis_server: redis.Redis) -> None:
    others = {client["id"] for client in redis_server.client_list() if int(client["sub"])}
    with subscriber.listen("a") as one, subscriber.listen("a") as two, subscriber.listen("b") as three:
        assert one is not None
        assert two is not None
        assert three is not None
        subscribers = {client["id"] for client in redis_server.client_list() if int(client["sub"])}
        assert len(subscribers - others) == 1
        redis_server.publish("a", "x")
        assert one.wait(10)
        assert two.wait(10)
        assert not three.wait(0)
        assert not one.wait(0)  # a ring is heard once
    with subscriber.listen("a") as again:
        assert again is not None
        redis_server.publish("a", "x")
        assert again.wait(10)


def test_no_bell_where_redis_is_away() -> None:
    fastpath.breaker.failed(open_seconds=60)
    with subscriber.listen("a") as bell:
        assert bell is None
