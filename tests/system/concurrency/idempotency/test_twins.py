"""Twins at the same instant: however Redis behaves, one effect, one answer."""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.test import override_settings

from idempotency.models import LedgerEntry
from idempotency.redis import marker
from tests.integration.idempotency.conftest import Caller
from tests.integration.idempotency.urls import PLAN
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]

Effects = Callable[[], int]
COPIES = 8


def answers_of(user: User, count: int = COPIES, path: str = "/things") -> list[Any]:
    return at_once(*[lambda: Caller(user).post(path, body={"name": "a"}) for _ in range(count)])


def one_effect(answers: list[Any], effects: Effects) -> None:
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert effects() == LedgerEntry.objects.count() == 1


def test_twins_with_redis(user: User, effects: Effects) -> None:
    one_effect(answers_of(user), effects)


@pytest.mark.parametrize("wait_seconds", [0, 5])
def test_twins_without_redis(user: User, effects: Effects, wait_seconds: float) -> None:
    with override_settings(IDEMPOTENCY={"REDIS_ALIAS": None, "WAIT_SECONDS": wait_seconds}):
        answers = answers_of(user)
    one_effect(answers, effects)
    if wait_seconds:
        assert {answer.status_code for answer in answers} == {201}


def test_twins_that_wait_all_get_the_answer(user: User, effects: Effects) -> None:
    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 5}):
        answers = answers_of(user)
    assert {answer.status_code for answer in answers} == {201}
    one_effect(answers, effects)


def test_twins_while_redis_is_flushed_all_the_time(user: User, effects: Effects) -> None:
    stop = False

    def flush() -> None:
        client = redis.Redis.from_url(os.environ["REDIS_URL"])
        while not stop:
            client.flushdb()
        client.close()

    def post() -> Any:
        nonlocal stop
        try:
            return Caller(user).post()
        finally:
            stop = True

    answers = at_once(flush, *[post for _ in range(COPIES)])[1:]
    one_effect(answers, effects)


def test_twins_of_which_some_see_redis_and_some_do_not(
    user: User, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    original = marker.claim
    monkeypatch.setattr(marker, "claim", lambda *a, **k: original(*a, **k) if rng.random() < 0.5 else None)
    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 5}):
        one_effect(answers_of(user), effects)


def test_twins_whose_marker_is_always_granted(
    user: User, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis lies to everyone: all run the handler, the unique constraint leaves one of them."""
    monkeypatch.setattr(marker, "claim", lambda *a, **k: marker.Claimed(b"mine"))
    answers = answers_of(user)
    one_effect(answers, effects)
    assert {answer.status_code for answer in answers} == {201}


def test_twins_in_phased_mode(user: User, effects: Effects) -> None:
    answers = answers_of(user, path="/phased")
    one_effect(answers, effects)
    assert PLAN["resumed"] == [False]


def test_different_keys_do_not_wait_for_each_other(user: User, effects: Effects) -> None:
    answers = at_once(*[lambda key=f"k{n}": Caller(user).post(key=key, body={"name": key}) for n in range(COPIES)])
    assert {answer.status_code for answer in answers} == {201}
    assert effects() == COPIES
