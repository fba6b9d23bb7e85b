"""One-time tokens over HTTP."""

import sys
from datetime import datetime

import pytest

from idempotency.drf.tokens import TokenList, _documented
from tests.integration.idempotency.conftest import Caller, Effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


def issued(caller: Caller) -> str:
    answer = caller.post("/tokens", key=None)
    assert answer.status_code == 201
    assert set(answer.json()) == {"token", "expires_at"}
    assert datetime.fromisoformat(answer.json()["expires_at"]).tzinfo is not None
    token: str = answer.json()["token"]
    return token


def test_a_token_is_also_good_as_a_key_and_counts_once_by_either_header(caller: Caller, effects: Effects) -> None:
    token = issued(caller)
    first = caller.post(key=token)
    assert caller.post(key=token).content == first.content
    for written in (token, f'"{token}"'):  # as a key may be, too
        assert caller.post(key=None, **{"Idempotency-Token": written}).content == first.content
    elsewhere = caller.post("/others", key=token)
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (422, "idempotency_key_reused")
    assert effects() == 1


def test_an_unknown_token_is_409_also_beside_a_key(caller: Caller, effects: Effects) -> None:
    for key, token in ((None, "nonsense"), (None, "a:b:c"), (None, "x" * 300), ("k1", "nonsense")):
        answer = caller.post(key=key, **{"Idempotency-Token": token})
        assert (answer.status_code, answer.json()["code"]) == (409, "token_unknown")
    together = caller.post(key="k1", **{"Idempotency-Token": issued(caller)})
    assert (together.status_code, together.json()["code"]) == (400, "idempotency_key_invalid")
    assert effects() == 0


def test_they_are_issued_where_spectacular_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "drf_spectacular", None)
    monkeypatch.delitem(sys.modules, "drf_spectacular.utils")
    assert _documented(TokenList.post) is TokenList.post
