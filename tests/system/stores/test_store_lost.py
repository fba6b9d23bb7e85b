"""All of the store is killed in the middle of a call: the ledger keeps each promise."""

import pytest

from idempotency.redis import fastpath, subscriber
from idempotency.redis.marker import key_of
from idempotency.request.keys import digest_of
from tests.running import until
from tests.system.stores.conftest import Effects, Post, is_replay_of, of_servers
from tests.system.stores.stores import Store
from tests.system.stores.urls import PLAN
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.system.stores.urls")]


@of_servers
def test_killed_in_the_middle_of_a_call_and_used_again_when_it_is_back(
    post: Post, effects: Effects, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLAN.during.append(store.kill)
    first = post()
    assert first.status_code == 201
    assert is_replay_of(post(), first)
    for number in range(2):
        fastpath.breaker.succeeded()  # so that the dead servers are really asked again
        assert is_replay_of(post(), first)
        assert post(body={"name": "b"}).status_code == 422
        fastpath.breaker.succeeded()
        fresh = post(f"fresh-{number}")
        assert fresh.status_code == 201
        assert is_replay_of(post(f"fresh-{number}"), fresh)
    assert effects() == 3
    assert {answer.status_code for answer in at_once(*[lambda: post("copies")] * 8)} <= {201, 409}
    assert effects() == 4

    monkeypatch.setattr(subscriber, "READY_SECONDS", 60)  # a busy machine may confirm late
    channel = key_of(digest_of(scope="s", key="k"))
    fastpath.breaker.succeeded()
    with subscriber.listen(channel) as bell:  # a dead store is asked once
        assert bell is None
    store.mend()
    for _ in range(3):  # a client may need a command or two to see that its connections are dead
        fastpath.breaker.succeeded()
        assert is_replay_of(post(), first)
    assert fastpath.takes_writes() is True
    assert store.keys()
    assert effects() == 4
    with subscriber.listen(channel) as bell:
        assert bell is not None

        def rings() -> bool:
            fastpath.attempt(lambda redis: redis.publish(channel, b"ended"))
            return bell.wait(1)

        until(rings)  # nodes that came back may not know each other yet, and drop what one publishes
