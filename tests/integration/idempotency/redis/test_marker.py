"""The marker's commands, with and without a server that knows `SET … NX GET`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from idempotency.redis import fastpath, marker
from idempotency.response.answers import StoredResponse
from tests.system.stores.stores import STORES

NAME = "payonce:key:{d}"
ANSWER = StoredResponse(status=201, headers={}, body=b"made")


@pytest.fixture(params=[kind for kind in ("Redis", "Valkey") if kind in STORES])
def server(
    request: pytest.FixtureRequest, stores: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[redis.Redis]:
    """A client of an empty server, which the markers use too."""
    with redis.Redis.from_url(stores(request.param).topology.url) as client:
        client.flushall()
        monkeypatch.setattr(fastpath, "client", lambda: client)
        yield client
    fastpath.breaker.succeeded()


def claim(owner: str = "first") -> Any:
    return marker.claim(NAME, fingerprint=b"f" * 32, owner=owner, ttl_seconds=60)


def finish(*, wait: bool = False) -> None:
    marker.finish(NAME, fingerprint=b"f" * 32, answer=ANSWER, ttl_seconds=60, wait=wait)


def commands(server: redis.Redis, call: Callable[[], object]) -> set[str]:
    """The kinds of commands that `call` takes."""
    server.config_resetstat()
    call()
    return {name.removeprefix("cmdstat_") for name in server.info("commandstats")} - {"config|resetstat", "config"}


def test_no_script_runs_where_the_server_needs_none(server: redis.Redis) -> None:
    claim()
    finish(wait=True)
    server.delete(NAME)
    knows = server.info("server")["redis_version"] >= "7"
    assert commands(server, claim) == ({"set"} if knows else {"evalsha", "set"})
    assert commands(server, lambda: finish(wait=True)) == {"set", "publish"}


def test_an_answer_that_redis_refuses_opens_the_breaker_where_it_is_waited_for(server: redis.Redis) -> None:
    claim()
    server.config_set("maxmemory", 1)
    finish(wait=True)
    assert not fastpath.breaker.is_closed
    server.config_set("maxmemory", 0)
    fastpath.breaker.succeeded()
    assert isinstance(marker.look(NAME), marker.Running)  # and the PUBLISH's reply is not taken for this one


def test_a_full_server_does_not_pass_for_one_that_works(server: redis.Redis) -> None:
    server.config_set("maxmemory", 1)
    full = fastpath.takes_writes()
    server.config_set("maxmemory", 0)
    fastpath.breaker.succeeded()
    assert (full, fastpath.takes_writes()) == (False, True)
