"""Rows F13–F20 of docs/guarantees.md: Redis forgets, hangs, goes away, comes back, lies."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import override_settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from idempotency.models import LedgerEntry
from idempotency.redis import fastpath, marker
from idempotency.redis.connection import PipelinedConnection
from idempotency.request.keys import digest_of
from tests.conftest import hanging
from tests.system.failures.conftest import Stage
from tests.system.protocol import requests
from tests.system.protocol.requests import BOTH, order

pytestmark = pytest.mark.parametrize("stage", ["with Redis"], indirect=True)


def nowhere() -> Any:
    """A client of a server that is not there."""
    return Redis(unix_socket_path="/nonexistent/redis.sock", retry=Retry(NoBackoff(), 0))


@BOTH
def test_f13_redis_forgets_while_the_first_runs(stage: Stage, view: Any) -> None:
    """Then an atomic duplicate is executed beside it, and one of the two is undone."""
    first = stage.bring_before(stage.start(view), "the effect" if view is order else "the result")
    stage.server.flushall()
    duplicate = stage.send(view)
    answer = stage.end(first)
    assert duplicate == answer if view is order else stage.is_held_off(duplicate)
    assert stage.send(view) == answer
    stage.happened(1)


@BOTH
def test_f14_redis_forgets_a_finished_answer(stage: Stage, view: Any) -> None:
    first = stage.send(view)
    stage.server.flushall()
    assert stage.send(view) == first
    stage.happened(1)


@BOTH
def test_f15_redis_is_away_from_the_beginning(stage: Stage, view: Any) -> None:
    away = {**requests.SETTINGS, "REDIS": "tests.system.failures.test_redis.nowhere"}
    with override_settings(IDEMPOTENCY=away):
        stage.ends_well(view)


@BOTH
def test_f16_redis_goes_away_in_the_middle(stage: Stage, view: Any) -> None:
    first = stage.bring_before(stage.start(view), "finish")
    fastpath.breaker.failed(open_seconds=3600)
    answer = stage.end(first)
    assert answer[0] == 201
    assert stage.send(view) == answer
    stage.happened(1)


@BOTH
def test_f17_redis_hangs(stage: Stage, view: Any) -> None:
    """The first one waits for the client's time-out, and the breaker spares the next ones the same."""
    with hanging(stage.server):
        stage.ends_well(view)
        assert not fastpath.breaker.allows(open_seconds=3600)


@BOTH
def test_f18_redis_comes_back_with_a_marker_of_the_past(stage: Stage, view: Any) -> None:
    """A running marker stands there, while the ledger has the answer: the ledger is believed."""
    with override_settings(IDEMPOTENCY=requests.WITHOUT_REDIS):
        first = stage.send(view)
    _set_running(stage)
    assert stage.send(view) == first
    stage.happened(1)


def test_f19_a_marker_of_nobody_stands_there(stage: Stage) -> None:
    stage.send(order)
    fingerprint, digest = _set_running(stage)
    LedgerEntry.objects.all().delete()
    Group.objects.all().delete()
    assert stage.is_held_off(stage.send(order))  # for MARKER_SECONDS
    assert fingerprint in (stage.server.get(marker.key_of(digest)) or b"")
    stage.let_time_pass()
    stage.ends_well(order)


@BOTH
@pytest.mark.parametrize("value", [b"", b"Fnonsense", b"F{}\n", b"\xff\xfe"])
def test_f20_nonsense_stands_there(stage: Stage, view: Any, value: bytes) -> None:
    first = stage.send(view)
    for name in stage.server.keys("*:key:*"):
        stage.server.set(name, value)
    assert stage.send(view) == first
    stage.happened(1)


@BOTH
@pytest.mark.parametrize("reply", [[b"an", b"array"], 7, {}])
def test_f20_redis_replies_nonsense(
    stage: Stage, view: Any, reply: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another server, or a proxy in front of one, may reply to a claim."""
    first = stage.send(view)
    monkeypatch.setattr(PipelinedConnection, "ask", lambda *_args, **_options: reply)
    assert stage.send(view) == first
    stage.happened(1)


def _set_running(stage: Stage) -> tuple[bytes, str]:
    """The marker of a run that nobody runs, with the right fingerprint."""
    entry = LedgerEntry.objects.get()
    digest = digest_of(scope=entry.scope, key=entry.key)
    fingerprint = bytes(entry.fingerprint).hex().encode()
    stage.server.set(marker.key_of(digest), b"R" + fingerprint + b":nobody")
    return fingerprint, digest
