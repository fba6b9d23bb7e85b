"""One request that is stopped, killed or robbed of a store at a named place; the places are those of tests/protocol."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.test import override_settings

from tests.system.protocol import requests

# the stops before every call to the stores, and who stops there
from tests.system.protocol.conftest import _players, _stops  # noqa: F401
from tests.system.protocol.explorer import Actor, Run

Answer = tuple[int, str]


class Stage:
    """The one request under test, its world, and what is true afterwards."""

    def __init__(self, server: redis.Redis, *, uses_redis: bool) -> None:
        requests.outside.charged.clear()
        self.server = server
        self.uses_redis = uses_redis
        self._run = Run([])

    def send(self, view: Any, plan: str = "succeed", body: str = "{}") -> Answer:
        """From the beginning to the end, in this thread."""
        return requests.send(view, "k1", body, plan)

    def start(self, view: Any, plan: str = "succeed") -> Actor:
        """A request that has not begun yet."""
        actor = Actor("A", lambda: requests.send(view, "k1", "{}", plan))
        self._run.start(actor)
        return actor

    def bring_before(self, actor: Actor, place: str) -> Actor:
        """Let it go on until it stands before `place`."""
        while not self._run.trace or self._run.trace[-1] != f"A before {place}":
            assert not actor.done, f"it ended before {place}: {self._run.trace}"
            self._run.let_go(actor)
        return actor

    def end(self, actor: Actor) -> Answer:
        """Let it go on to its end; its answer."""
        while not actor.done:
            self._run.let_go(actor)
        answer: Answer = actor.answer
        return answer

    def kill(self, actor: Actor) -> None:
        """Its process dies where it stands."""
        self._run.let_go(actor, kill=True)

    def killed_before(self, place: str, view: Any) -> None:
        self.kill(self.bring_before(self.start(view), place))

    def let_time_pass(self) -> None:
        requests.let_time_pass(self.server)

    def happened(self, times: int) -> None:
        """In our database, and outside at most as often."""
        assert requests.effects("k1") == times
        assert len(requests.outside.charged) <= 1

    def ends_well(self, view: Any) -> None:
        """A retry succeeds, those after it hear the same, and it has happened once."""
        first = self.send(view)
        assert first[0] == 201
        assert [self.send(view) for _ in range(2)] == [first, first]
        self.happened(1)

    def is_held_off(self, answer: Answer) -> bool:
        return answer[0] == 409 and "idempotency_in_progress" in answer[1]


@pytest.fixture(params=["with Redis", "without Redis"])
def stage(request: pytest.FixtureRequest, redis_server: redis.Redis, transactional_db: None) -> Iterator[Stage]:
    uses_redis = request.param == "with Redis"
    with override_settings(IDEMPOTENCY=requests.SETTINGS if uses_redis else requests.WITHOUT_REDIS):
        yield Stage(redis_server, uses_redis=uses_redis)
