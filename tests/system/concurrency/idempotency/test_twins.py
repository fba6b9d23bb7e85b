"""Twins at the same instant: however Redis behaves, one effect, one answer."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from idempotency.models import LedgerEntry
from idempotency.redis import marker
from tests.integration.idempotency.conftest import Caller
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
