"""Sentinels: a call ends on another master than it began on."""

from collections.abc import Callable

import pytest
from django.http import HttpResponse

from idempotency.redis import fastpath
from tests.system.stores.conftest import Effects, Post, is_replay_of
from tests.system.stores.stores import BehindSentinels
from tests.system.stores.test_concurrent_duplicates import Held, is_held_off, wait_beside

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.system.stores.urls"),
    pytest.mark.parametrize(
        "pair", [("/atomic", "Sentinel"), ("/phased", "Sentinel")], ids=["failover", "killed"]
    ),
]


@pytest.fixture
def change_master(path: str, store: BehindSentinels) -> Callable[[], None]:
    """What makes the replica the master: a failover, or the master's end."""
    return store.fail_over if path == "/atomic" else store.kill_master


def test_after_a_change_of_masters_answers_stay_and_the_new_one_is_used(
    post: Post, effects: Effects, store: BehindSentinels, change_master: Callable[[], None]
) -> None:
    """A connection to the old master works until then, and its writes are lost."""
    first = post()
    change_master()
    for _ in range(3):  # the first command may find its connection cut
        fastpath.breaker.succeeded()
        assert is_replay_of(post(), first)
    between = post("k2")
    store.demote()
    for _ in range(3):
        fastpath.breaker.succeeded()
        assert is_replay_of(post(), first)
    assert is_replay_of(post("k2"), between)
    fresh = post("k3")
    assert is_replay_of(post("k3"), fresh)
    assert len(store.keys()) == 3
    assert effects() == 3


def test_a_change_of_masters_in_the_middle_of_a_call(
    post: Post, effects: Effects, store: BehindSentinels, change_master: Callable[[], None]
) -> None:
    """Where the marker is lost the duplicate runs, and the ledger lets one of both count."""
    held = Held()

    def change_and_post() -> HttpResponse:
        change_master()
        fastpath.breaker.succeeded()
        return post()

    with store.in_force(MARKER_SECONDS=60):
        first, duplicate = held.beside(post, change_and_post)
    fastpath.breaker.succeeded()
    assert first.status_code == 201
    assert is_held_off(duplicate) or duplicate.content == first.content
    assert is_replay_of(post(), first)
    assert effects() == 1


def test_who_waits_through_a_change_of_masters_gets_the_answer(
    post: Post, effects: Effects, store: BehindSentinels, change_master: Callable[[], None]
) -> None:
    """A waiter whose subscriber is cut off looks again, at the latest after a marker's life."""
    held = Held()

    def waited_through() -> bool:
        if not store.listened_to():
            return False
        change_master()
        return True

    with store.in_force(WAIT_SECONDS=60, MARKER_SECONDS=2):
        first, second = wait_beside(held, post, waited_through)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert effects() == 1
