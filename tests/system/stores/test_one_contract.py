"""Promises to a caller, call after call, in both modes over every store."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from idempotency.maintenance.reaper import reap
from idempotency.models import LedgerEntry
from tests.system.stores.conftest import Effects, Post, counted, is_replay_of, posting
from tests.system.stores.stores import Store
from tests.system.stores.urls import BREAK, PLAN

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.system.stores.urls")]


def test_a_fresh_key_executes_once_and_every_copy_gets_its_bytes(post: Post, effects: Effects) -> None:
    first = post()
    assert first.status_code == 201
    assert "Idempotent-Replayed" not in first
    assert all(is_replay_of(post(), first) for _ in range(3))
    other = post(body={"name": "b"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert is_replay_of(post(), first)
    assert (effects(), len(PLAN.runs)) == (1, 1)


def test_another_key_route_or_caller_is_another_call(post: Post, effects: Effects, path: str) -> None:
    first = post()
    bob = posting(User.objects.create_user("bob"), path)
    theirs = bob()
    assert "Idempotent-Replayed" not in theirs
    other = {"/atomic": "/phased", "/phased": "/atomic"}[path]
    answers = [first, theirs, post("k2"), post(to=other)]
    assert len({answer.content for answer in answers}) == effects() == 4
    assert is_replay_of(bob(), theirs)
    assert is_replay_of(post(), first)
    assert effects() == 4


def test_a_refusal_is_an_answer(post: Post, effects: Effects) -> None:
    for number, status in enumerate([402, 404, 409, 410, 412, 422], start=1):
        PLAN.answers.append(status)
        first = post(f"k{number}")
        assert first.status_code == status
        assert is_replay_of(post(f"k{number}"), first)
        assert (effects(), len(PLAN.runs)) == (0, number)


def test_any_other_no_leaves_the_key_free_at_once(post: Post, effects: Effects) -> None:
    for number, status in enumerate([400, 401, 403, 413, 415, 429, 500, 503, BREAK], start=1):
        key = f"k{number}"
        PLAN.answers.append(status)
        assert post(key).status_code == (status or 500)
        assert effects() == number - 1
        assert "Idempotent-Replayed" not in (first := post(key))
        assert first.status_code == 201
        assert is_replay_of(post(key), first)
        assert effects() == number


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


def test_a_key_whose_bytes_were_too_many_or_are_purged_is_410(post: Post, effects: Effects, store: Store) -> None:
    with store.in_force(MAX_RESPONSE_BYTES=4):
        large = post("large")
        assert large.status_code == 201
        again = post("large")
    assert (again.status_code, again["Location"]) == (410, large["Location"])
    first, day = post(), timedelta(days=1)
    LedgerEntry.objects.update(created_at=F("created_at") - day, finished_at=F("finished_at") - day)
    assert reap()["bodies"] == 1
    store.flush()
    for _ in range(2):
        gone = post()
        assert (gone.status_code, gone.json()["code"]) == (410, "idempotency_result_expired")
        assert gone["Location"] == first["Location"]
    assert post(body={"name": "b"}).status_code == 422
    assert effects() == 2


def test_a_one_time_token_is_taken_once_and_counts_only_where_it_was_used_once_it_is_over(
    post: Post, effects: Effects, path: str, store: Store
) -> None:
    used, unused = ({"Idempotency-Token": post(key=None, to="/tokens").json()["token"]} for _ in range(2))
    first = post(key=None, **used)
    assert first.status_code == 201
    assert is_replay_of(post(key=None, **used), first)
    assert post(key=None, body={"name": "b"}, **used).status_code == 422
    stolen = posting(User.objects.create_user("bob"), path)(key=None, **used)
    assert (stolen.status_code, stolen.json()["code"]) == (409, "token_unknown")
    store.flush()
    assert is_replay_of(post(key=None, **used), first)
    with store.in_force(TOKEN_SECONDS=1e-9):
        assert post(key=None, **unused).json()["code"] == "token_unknown"
        assert is_replay_of(post(key=None, **used), first)
    assert effects() == 1
