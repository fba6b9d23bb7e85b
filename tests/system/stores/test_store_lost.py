"""The store is killed (kill -9, all of it) in the middle of a call: the ledger alone keeps every promise."""

from collections.abc import Callable

import pytest

from idempotency.redis import fastpath, subscriber
from idempotency.redis.marker import key_of
from idempotency.request.keys import digest_of
from tests.running import until
from tests.system.stores.conftest import Post, is_replay_of
from tests.system.stores.stores import Store
from tests.system.stores.urls import PLAN
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.system.stores.urls")]

Effects = Callable[[], int]


def test_killed_in_the_middle_of_a_call(post: Post, effects: Effects, store: Store) -> None:
    PLAN.during.append(store.kill)
    first = post()
    assert first.status_code == 201
    assert is_replay_of(post(), first)
    for number in range(3):
        fastpath.breaker.succeeded()  # so that the dead servers are really asked again
        assert is_replay_of(post(), first)
        assert post(body={"name": "b"}).status_code == 422
        fastpath.breaker.succeeded()
        fresh = post(f"fresh-{number}")
        assert fresh.status_code == 201
        assert is_replay_of(post(f"fresh-{number}"), fresh)
    assert effects() == 4
    assert {answer.status_code for answer in at_once(*[lambda: post("copies")] * 8)} <= {201, 409}
    assert effects() == 5


def test_a_store_that_comes_back_is_used_again(post: Post, effects: Effects, store: Store) -> None:
    first = post()
    store.kill()
    fastpath.breaker.succeeded()
    assert is_replay_of(post(), first)
    store.mend()
    fastpath.breaker.succeeded()
    for _ in range(3):  # a client may need a command or two to see that its connections are dead
        fastpath.breaker.succeeded()
        assert is_replay_of(post(), first)
    assert fastpath.ping() is store.keeps
    assert bool(store.keys()) is store.keeps
    assert effects() == 1


def test_who_waits_for_a_lost_store_does_not_spoil_later_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscriber asks a dead store once and gets no bell; from one that came back it gets one that rings."""
    monkeypatch.setattr(subscriber, "READY_SECONDS", 60)  # a busy machine may confirm late
    channel = key_of(digest_of(scope="s", key="k"))
    store.kill()
    fastpath.breaker.succeeded()
    with subscriber.listen(channel) as bell:
        assert bell is None
    store.mend()
    fastpath.breaker.succeeded()
    fastpath.ping()
    fastpath.breaker.succeeded()
    with subscriber.listen(channel) as bell:
        assert (bell is not None) is store.keeps
        if bell is not None:

            def rings() -> bool:
                fastpath.attempt(lambda redis: redis.publish(channel, b"ended"))
                return bell.wait(1)

            until(rings)  # nodes that came back may not know each other yet, and drop what one publishes
