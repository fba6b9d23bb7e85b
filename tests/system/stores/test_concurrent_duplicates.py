"""Promises to a caller beside its own copies, in both modes over every store."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse

from tests.system.stores.conftest import Effects, Post, is_replay_of
from tests.system.stores.stores import Store
from tests.system.stores.urls import BREAK, PLAN
from tests.threads import at_once, waiting_for_locks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.system.stores.urls")]

PATIENT = {"WAIT_SECONDS": 60, "MARKER_SECONDS": 60}


class Held:
    """The next run of the handler stands still: `inside` says that it does, `go` lets it on."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()
        PLAN.during.append(self._stand)

    def _stand(self) -> None:
        self.inside.set()
        assert self.go.wait(60)

    def beside(self, post: Post, *others: Callable[[], Any]) -> list[Any]:
        """Make the held call, and the others while it stands; return all answers."""

        def conduct() -> list[Any]:
            try:
                assert self.inside.wait(60)
                return [other() for other in others]
            finally:
                self.go.set()

        first, said = at_once(post, conduct)
        return [first, *said]


@pytest.fixture
def held(store: Store) -> Held:
    return Held()


def is_held_off(answer: HttpResponse) -> bool:
    return (
        answer.status_code == 409
        and answer.json()["code"] == "idempotency_in_progress"
        and int(answer["Retry-After"]) >= 1
    )


def test_while_the_first_runs_its_duplicate_is_409_and_another_body_is_no_success(
    post: Post, effects: Effects, store: Store, held: Held
) -> None:
    """Another body is 409 where nothing but a lock shows the first, and not its body."""
    with store.in_force(MARKER_SECONDS=60):
        first, duplicate, other, stranger = held.beside(
            post, post, lambda: post(body={"name": "b"}), lambda: post("k2")
        )
    assert is_held_off(duplicate)
    assert (first.status_code, stranger.status_code) == (201, 201)
    assert other.status_code in ({422} if store.keeps else {409, 422})
    assert post(body={"name": "b"}).status_code == 422
    assert is_replay_of(post(), first)
    assert effects() == 2


def waits(path: str, store: Store) -> bool:
    """Whether a duplicate has gone to sleep, as far as another can know."""
    if store.keeps or path == "/phased":
        return store.listened_to()
    return bool(waiting_for_locks())


def wait_beside(held: Held, post: Post, until: Callable[[], bool]) -> tuple[HttpResponse, HttpResponse]:
    """Let the held call go on once its duplicate waits, or is answered already."""
    answered = threading.Event()

    def duplicate() -> HttpResponse:
        assert held.inside.wait(60)
        try:
            return post()
        finally:
            answered.set()

    def conduct() -> Any:
        assert held.inside.wait(60)
        while not until() and not answered.is_set():
            pass
        held.go.set()

    first, second, _ = at_once(post, duplicate, conduct)
    return first, second


def test_a_waiting_duplicate_is_woken_and_replays(
    post: Post, effects: Effects, path: str, store: Store, held: Held
) -> None:
    with store.in_force(**PATIENT):
        first, second = wait_beside(held, post, lambda: waits(path, store))
    assert first.status_code == 201
    assert is_replay_of(second, first)
    assert (effects(), len(PLAN.runs)) == (1, 1)


def test_a_waiting_duplicate_runs_when_the_first_breaks(
    post: Post, effects: Effects, path: str, store: Store, held: Held
) -> None:
    PLAN.answers.append(BREAK)
    with store.in_force(**PATIENT):
        first, second = wait_beside(held, post, lambda: waits(path, store))
    assert (second.status_code, "Idempotent-Replayed" in second) == (201, False)
    assert first.status_code == 500 or is_replay_of(
        first, second
    )  # the duplicate may be done before it is answered
    assert (effects(), len(PLAN.runs)) == (1, 2)


def test_eight_copies_at_once_have_one_effect(post: Post, effects: Effects) -> None:
    token = post(key=None, to="/tokens").json()["token"]
    for count, call in enumerate((post, lambda: post(key=None, **{"Idempotency-Token": token})), start=1):
        answers = at_once(*[call] * 8)
        assert effects() == count
        made = [answer for answer in answers if answer.status_code == 201]
        assert len({answer.content for answer in made}) == 1
        assert sum("Idempotent-Replayed" not in answer for answer in made) == 1
        assert all(is_held_off(answer) for answer in answers if answer not in made)
