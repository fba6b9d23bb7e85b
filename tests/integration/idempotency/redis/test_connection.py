"""The thread's own connection to Redis: commands sent without waiting arrive in order."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import redis
from redis.exceptions import ReadOnlyError

from idempotency.observability import metrics
from idempotency.redis import fastpath, marker
from idempotency.redis.connection import PENDING_MAX, PipelinedConnection, connection_of
from idempotency.redis.fastpath import Script
from idempotency.response.answers import StoredResponse
from tests.conftest import hanging
from tests.running import until

DIGEST = "d" * 64
SCRIPT = Script("claim", package="idempotency.redis")
ANSWER = StoredResponse(status=201, headers={}, body=b"made")


@pytest.fixture
def ours(redis_server: redis.Redis) -> PipelinedConnection:
    """The connection of this thread, which knows what its server can do."""
    claim(DIGEST)
    finish(DIGEST)
    redis_server.flushdb()
    found = connection_of(fastpath.client())
    assert isinstance(found, PipelinedConnection)
    return found


def claim(digest: str) -> Any:
    return marker.claim(digest, fingerprint=b"f" * 32, owner="test", ttl_seconds=3)


def finish(digest: str) -> None:
    marker.finish(digest, fingerprint=b"f" * 32, answer=ANSWER, ttl_seconds=60, wait=False)


def failures() -> float:
    return metrics.redis_failures._value.get()


def test_a_server_that_lost_its_scripts_loses_one_that_was_sent(
    ours: PipelinedConnection, redis_server: redis.Redis
) -> None:
    before = failures()
    SCRIPT.send_nowait(ours, ["a"], ["first", 60_000])
    assert ours.ask("GET", "a") == b"first"
    redis_server.script_flush()
    SCRIPT.send_nowait(ours, ["b"], ["lost", 60_000])
    assert ours.ask("GET", "b") is None
    SCRIPT.send_nowait(ours, ["b"], ["second", 60_000])  # run and waited for: it is not known any more
    assert ours.ask("GET", "b") == b"second"
    assert failures() == before


@pytest.mark.parametrize("owed", [0, 1])
def test_a_connection_that_the_server_closed_is_opened_again(
    ours: PipelinedConnection, redis_server: redis.Redis, owed: int
) -> None:
    before = failures()
    for _ in range(owed):
        finish(DIGEST)
    redis_server.client_kill_filter(_type="normal", skipme=True)
    assert isinstance(claim("e" * 64), marker.Claimed)
    assert failures() == before


REFUSED: dict[str, Callable[[PipelinedConnection], Any]] = {
    "write": lambda ours: ours.ask("SET", "a", "b"),
    "claim": lambda ours: claim(DIGEST),
    "answer": lambda ours: finish(DIGEST),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_server_that_is_no_master_any_more_is_left(
    ours: PipelinedConnection, redis_server: redis.Redis, refused: str
) -> None:
    """Behind its address there may be another one by now."""
    number = ours.ask("CLIENT", "ID")
    redis_server.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        assert ours.ask("CLIENT", "ID") == number
        with pytest.raises(ReadOnlyError) if refused == "write" else nullcontext():
            REFUSED[refused](ours)
        assert ours.ask("CLIENT", "ID") != number
    finally:
        redis_server.execute_command("REPLICAOF", "NO", "ONE")
    fastpath.breaker.succeeded()
    assert isinstance(claim(DIGEST), marker.Claimed)


def test_a_hung_server_is_noticed_at_the_next_question(
    ours: PipelinedConnection, redis_server: redis.Redis
) -> None:
    before = failures()
    with hanging(redis_server):
        finish(DIGEST)
        assert claim(DIGEST) is None
        assert failures() == before + 1
    fastpath.breaker.succeeded()
    # the answer that came too late is not taken for that of another question
    assert isinstance(claim("e" * 64), marker.Claimed)


def test_a_sent_command_is_answered_at_the_next_question(ours: PipelinedConnection) -> None:
    answers: list[Any] = []
    ours.send_nowait("ECHO", "one", then=answers.append)
    ours.send_nowait("ECHO", "two")
    ours.send_nowait("no such command", then=answers.append)
    ours.send_nowait("ECHO", "three", then=answers.append)
    assert answers == []
    assert ours.ask("ECHO", "four") == b"four"
    assert answers == [b"one", b"three"]
    for each in range(PENDING_MAX + 2):  # nobody asks: it is read before too much is pending
        ours.send_nowait("ECHO", str(each), then=answers.append)
    assert answers[2:] == [str(each).encode() for each in range(PENDING_MAX)]


@pytest.fixture
def checked(redis_server: redis.Redis) -> Iterator[PipelinedConnection]:
    """A connection with redis-py's health check, due at once."""
    made = PipelinedConnection(redis.ConnectionPool.from_url(os.environ["REDIS_URL"], health_check_interval=0.001))
    yield made
    made.close()


def due(checked: PipelinedConnection) -> None:
    """Its next health check is: the clock has passed it."""
    checked._connection.next_health_check = 0


def test_a_health_check_reads_no_pending_reply(checked: PipelinedConnection) -> None:
    answers: list[Any] = []
    for each in range(2 * PENDING_MAX):
        due(checked)
        checked.send_nowait("ECHO", f"sent {each}", then=answers.append)
        due(checked)
        if each % 3:
            assert checked.ask("ECHO", f"asked {each}") == f"asked {each}".encode()
    checked.ask("PING")
    assert answers == [f"sent {each}".encode() for each in range(2 * PENDING_MAX)]


def test_a_health_check_finds_a_connection_that_was_cut(
    checked: PipelinedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose end has not come through: what is asked next goes over a new one, and is answered."""
    number = checked.ask("CLIENT", "ID")
    due(checked)
    checked._connection._sock.shutdown(socket.SHUT_WR)
    monkeypatch.setattr(checked, "_may_have_ended", lambda: False)
    assert checked.ask("CLIENT", "ID") != number


def test_an_answer_that_nobody_read_is_not_taken_for_another(
    ours: PipelinedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal's handler that raises may interrupt the thread after it asked."""
    assert marker.look(DIGEST) is None
    with monkeypatch.context() as patched:

        def interrupted() -> None:
            raise KeyboardInterrupt

        patched.setattr(ours, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            claim(DIGEST)
    assert isinstance(claim("e" * 64), marker.Claimed)
    assert isinstance(marker.look(DIGEST), marker.Running)


def test_every_thread_and_process_has_its_own_and_no_lock_of_its_parents(ours: PipelinedConnection) -> None:
    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.append(connection_of(fastpath.client())))
    thread.start()
    thread.join()
    assert others[0] is not ours
    with fastpath.breaker._lock:  # as another thread does while this one forks
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            fastpath.breaker.failed(open_seconds=1)
            os._exit(connection_of(fastpath.client()) is ours)
        assert os.waitpid(child, 0)[1] == 0
    assert connection_of(fastpath.client()) is ours


@pytest.mark.usefixtures("collector_off")
def test_threads_that_ended_leave_no_connection(stores: Callable[[str], Any]) -> None:
    """Over TCP redis-py's connections are in a circle, which garbage collection alone ends."""
    with redis.Redis(port=stores("Sentinel").topology.master_port, client_name="threads") as client:
        for _ in range(5):
            thread = threading.Thread(target=lambda: connection_of(client).ask("PING"))
            thread.start()
            thread.join()
        until(lambda: [one["name"] for one in client.client_list()].count("threads") == 1)
