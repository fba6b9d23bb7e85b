"""What only Sentinels can get wrong: the master that a call began on is not the one that it ends on."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse

from idempotency.redis import fastpath
from tests.system.stores.conftest import Post, is_replay_of, posting, use
from tests.system.stores.stores import BehindSentinels, Store
from tests.system.stores.test_concurrent_duplicates import Held, is_held_off, wait_beside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.system.stores.urls")]

Effects = Callable[[], int]


@pytest.fixture
def sentinels(stores: Callable[[str], Store]) -> Iterator[BehindSentinels]:
    for store in use(stores("Sentinel")):
        assert isinstance(store, BehindSentinels)
        yield store


@pytest.fixture(params=[("/atomic", "failover"), ("/phased", "master killed")], ids=" ".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    named: tuple[str, str] = request.param
    return named


@pytest.fixture
def change_master(pair: tuple[str, str], sentinels: BehindSentinels) -> Callable[[], None]:
    """Afterwards the former replica is the master."""
    return sentinels.fail_over if pair[1] == "failover" else sentinels.kill_master


@pytest.fixture
def post(user: User, path: str, sentinels: BehindSentinels) -> Post:
    return posting(user, path)


def test_after_a_change_of_masters_answers_stay_and_the_new_one_is_used(
    post: Post, effects: Effects, sentinels: BehindSentinels, change_master: Callable[[], None]
) -> None:
    """Between the two, a connection to the old master still works, and what it writes there will be lost."""
    first = post()
    change_master()
    for _ in range(3):  # the first command may find its connection cut
        fastpath.breaker.succeeded()
        assert is_replay_of(post(), first)
    between = post("k2")
    sentinels.demote()
    for _ in range(3):
        fastpath.breaker.succeeded()
        assert is_replay_of(post(), first)
    assert is_replay_of(post("k2"), between)
    fresh = post("k3")
    assert is_replay_of(post("k3"), fresh)
    assert len(sentinels.keys()) == 3
    assert effects() == 3


def test_a_change_of_masters_in_the_middle_of_a_call(
    post: Post, effects: Effects, sentinels: BehindSentinels, change_master: Callable[[], None]
) -> None:
    """The marker may be lost with the old master; then the duplicate runs, and the ledger lets one of the two count."""
    held = Held()

    def change_and_post() -> HttpResponse:
        change_master()
        fastpath.breaker.succeeded()
        return post()

    with sentinels.in_force(MARKER_SECONDS=60):
        first, duplicate = held.beside(post, change_and_post)
    fastpath.breaker.succeeded()
    assert first.status_code == 201
    assert is_held_off(duplicate) or duplicate.content == first.content
    assert is_replay_of(post(), first)
    assert effects() == 1


def test_who_waits_through_a_change_of_masters_gets_the_answer(
    post: Post, effects: Effects, sentinels: BehindSentinels, change_master: Callable[[], None]
) -> None:
    """The subscriber's connection is cut; who waits looks for himself, at the latest after a marker's life."""
    held = Held()

    def waited_through() -> bool:
        if not sentinels.listened_to():
            return False
        change_master()
        return True

    with sentinels.in_force(WAIT_SECONDS=60, MARKER_SECONDS=2):
        first, second = wait_beside(held, post, waited_through)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert effects() == 1
