"""What a caller is promised, call after call: the same tests in both modes over every store."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from idempotency.maintenance.reaper import reap
from idempotency.models import LedgerEntry
from tests.system.stores.conftest import Post, counted, is_replay_of, posting
from tests.system.stores.stores import Store
from tests.system.stores.urls import BREAK, PLAN

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.system.stores.urls")]

Effects = Callable[[], int]


def test_a_fresh_key_executes_once_and_every_copy_gets_its_bytes(post: Post, effects: Effects) -> None:
    first = post()
    assert first.status_code == 201
    assert "Idempotent-Replayed" not in first
    assert all(is_replay_of(post(), first) for _ in range(3))
    assert (effects(), len(PLAN.runs)) == (1, 1)


def test_two_keys_are_two_calls(post: Post, effects: Effects) -> None:
    assert post("k1").content != post("k2").content
    assert effects() == 2


def test_another_body_under_the_key_is_422(post: Post, effects: Effects) -> None:
    first = post()
    other = post(body={"name": "b"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert is_replay_of(post(), first)
    assert effects() == 1


def test_anothers_equal_key_is_another_key(post: Post, effects: Effects, path: str) -> None:
    first = post()
    bob = posting(User.objects.create_user("bob"), path)
    his = bob()
    assert "Idempotent-Replayed" not in his
    assert his.content != first.content
    assert is_replay_of(bob(), his)
    assert is_replay_of(post(), first)
    assert effects() == 2


@pytest.mark.parametrize("status", [402, 404, 409, 410, 412, 422])
def test_a_refusal_is_an_answer(post: Post, effects: Effects, status: int) -> None:
    PLAN.answers.append(status)
    first = post()
    assert first.status_code == status
    assert is_replay_of(post(), first)
    assert (effects(), len(PLAN.runs)) == (0, 1)


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
def test_any_other_no_leaves_the_key_free(post: Post, effects: Effects, status: int) -> None:
    PLAN.answers.append(status)
    assert post().status_code == status
    assert "Idempotent-Replayed" not in (first := post())
    assert first.status_code == 201
    assert is_replay_of(post(), first)
    assert effects() == 1


def test_a_handler_that_breaks_leaves_the_key_free_at_once(post: Post, effects: Effects) -> None:
    PLAN.answers.append(BREAK)
    assert post().status_code == 500
    assert effects() == 0
    first = post()
    assert first.status_code == 201
    assert is_replay_of(post(), first)
    assert effects() == 1


def test_what_a_flushed_store_forgot_the_ledger_gives_with_the_same_bytes(
    post: Post, effects: Effects, store: Store
) -> None:
    first = post()
    assert bool(store.keys()) is store.keeps
    store.flush()
    for source in ("ledger", "redis" if store.keeps else "ledger"):  # what the ledger gave was put back
        before = counted("idempotency_replays_total", source=source)
        assert is_replay_of(post(), first)
        assert counted("idempotency_replays_total", source=source) == before + 1
    assert effects() == 1


def test_after_its_bytes_are_purged_a_key_is_410(post: Post, effects: Effects, store: Store) -> None:
    first = post()
    day = timedelta(days=1)
    LedgerEntry.objects.update(created_at=F("created_at") - day, finished_at=F("finished_at") - day)
    assert reap()["bodies"] == 1
    store.flush()
    for _ in range(2):
        gone = post()
        assert (gone.status_code, gone.json()["code"]) == (410, "idempotency_result_expired")
        assert gone["Location"] == first["Location"]
    assert post(body={"name": "b"}).status_code == 422
    assert effects() == 1


def test_a_one_time_token_is_taken_once(post: Post, effects: Effects, path: str, store: Store) -> None:
    token = post(key=None, to="/tokens").json()["token"]
    first = post(key=None, **{"Idempotency-Token": token})
    assert first.status_code == 201
    assert is_replay_of(post(key=None, **{"Idempotency-Token": token}), first)
    assert post(key=None, body={"name": "b"}, **{"Idempotency-Token": token}).status_code == 422
    stranger = posting(User.objects.create_user("bob"), path)
    stolen = stranger(key=None, **{"Idempotency-Token": token})
    assert (stolen.status_code, stolen.json()["code"]) == (409, "token_unknown")
    store.flush()
    assert is_replay_of(post(key=None, **{"Idempotency-Token": token}), first)
    assert effects() == 1


def test_a_token_that_is_over_counts_only_where_it_was_used(post: Post, effects: Effects, store: Store) -> None:
    used, unused = (post(key=None, to="/tokens").json()["token"] for _ in range(2))
    first = post(key=None, **{"Idempotency-Token": used})
    with store.in_force(TOKEN_SECONDS=1e-9):
        assert post(key=None, **{"Idempotency-Token": unused}).json()["code"] == "token_unknown"
        assert is_replay_of(post(key=None, **{"Idempotency-Token": used}), first)
    assert effects() == 1


@pytest.mark.parametrize("key", [None, "k" * 256])
def test_a_call_without_a_good_key_does_nothing(
    post: Post, effects: Effects, store: Store, key: str | None
) -> None:
    assert post(key).status_code == 400
    assert (effects(), store.keys()) == (0, set())


def test_large_answers_are_remembered_without_their_bytes(post: Post, effects: Effects, store: Store) -> None:
    with store.in_force(MAX_RESPONSE_BYTES=4):
        first = post()
        assert first.status_code == 201
        again = post()
    assert (again.status_code, again["Location"]) == (410, first["Location"])
    assert effects() == 1


def test_a_key_is_bound_to_its_route(post: Post, effects: Effects, path: str) -> None:
    other = {"/atomic": "/phased", "/phased": "/atomic"}[path]
    assert post().content != post(to=other).content
    assert effects() == 2
