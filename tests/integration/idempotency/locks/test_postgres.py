"""PostgreSQL's locks: who holds, who waits, and what ends a hold."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import DatabaseError, connection, transaction

from idempotency.locks import postgres
from idempotency.locks.engine import session as session_module
from idempotency.locks.engine.holder import named
from idempotency.locks.engine.session import Session
from idempotency.locks.errors import LockError, LockLost, LockTimeout, LockUnavailable, NotHeld
from idempotency.locks.postgres import AdvisoryLock, AsyncAdvisoryLock, locked, transaction_lock
from shop.devserver.embedded import EmbeddedServers
from tests.integration.idempotency.locks.actors import Actor, Faced, a_face, until
from tests.integration.idempotency.locks.mutexes import asked, nothing_is_left, terminate, waits
from tests.integration.idempotency.locks.processes import Pool, account_table
from tests.processes import stand_still
from tests.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def accounts(transactional_db: None) -> Iterator[Any]:
    """Rows 1 to 4."""
    with account_table(4) as model:
        yield model


def lock_of(faced: Faced, name: str = "till", **settings: Any) -> Any:
    return (AdvisoryLock if faced.loop is None else AsyncAdvisoryLock)(name, **settings)


def test_a_release_that_is_cancelled_again_and_again_is_done_and_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []
    once, inside, go = Session.let_go, threading.Event(), threading.Event()

    def slow(session: Session) -> bool:
        inside.set()
        go.wait(30)
        return once(session)

    with a_face("asyncio") as faced:
        actor, lock = faced.actor(), lock_of(faced, on_released=lambda *_: ends.append("released"))
        actor.do(lock.acquire)
        monkeypatch.setattr(Session, "let_go", slow)
        releasing = actor.begin(lock.release)
        assert inside.wait(30)
        for _ in range(2):
            actor.cancel()
            faced.run(asyncio.sleep(0))
        assert not releasing.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            releasing.result(30)
    assert ends == ["released"]


@pytest.fixture
def other(transactional_db: None) -> Iterator[Actor]:
    """A thread with a transaction of its own, ended in the end."""
    actor = Actor()
    actor.do(lambda: connection.set_autocommit(False))
    yield actor
    actor.do(lambda: (connection.rollback(), connection.close()))
    actor.end()


@pytest.fixture(autouse=True)
def _nothing_is_left(transactional_db: None) -> Iterator[None]:
    """No test leaves a session behind, holding or waiting."""
    yield
    nothing_is_left()


def test_a_name_is_any_text(faced: Faced) -> None:
    actor = faced.actor()
    for name in ("", "a\x00b", "柜台", "x" * 10_000):
        lock = lock_of(faced, name)
        assert actor.do(lock.acquire)
        actor.do(lock.release)


def test_a_server_that_ends_a_waiter_or_is_away_is_reported(faced: Faced, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, (first, second) = lock_of(faced), faced.actors(2)
    assert first.do(lock.acquire)
    answer = second.begin(lock.acquire)
    waits(1)
    assert asked("SELECT pg_terminate_backend(pid, 30000) FROM pg_locks WHERE NOT granted") == [True]
    with pytest.raises(LockUnavailable):
        answer.result(30)
    with monkeypatch.context() as away:
        away.setitem(connection.settings_dict, "HOST", "/nowhere")
        with pytest.raises(LockUnavailable):
            second.do(lock.acquire)
    first.do(lock.release)


@contextlib.contextmanager
def standing_still(backend: int) -> Iterator[None]:
    """It keeps its connection, and answers nothing."""
    stand_still(backend)
    try:
        yield
    finally:
        os.kill(backend, signal.SIGCONT)


def test_a_silent_server_is_waited_for_no_longer_than_that(faced: Faced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "SILENCE_SECONDS", 0.2)
    lock, (first, second) = lock_of(faced), faced.actors(2)
    assert first.do(lock.acquire)
    answer = second.begin(lambda: lock.acquire(wait_seconds=600))
    waits(1)
    (backend,) = asked("SELECT pid FROM pg_locks WHERE NOT granted")
    with standing_still(backend):
        first.do(lock.cancel)
        with pytest.raises(LockUnavailable, match="did not answer"):
            answer.result(30)
    (backend,) = asked("SELECT pid FROM pg_locks WHERE granted AND locktype = 'advisory'")
    with standing_still(backend), pytest.raises(LockUnavailable, match="did not answer"):
        first.do(lock.release)
    assert first.do(lock.acquire)  # once it goes on, what was given up is over
    first.do(lock.release)


@pytest.mark.parametrize("wait_seconds", [0.1, 600], ids=["its time is over", "cancelled"])
def test_a_wait_does_not_outlast_a_backend_that_is_silent_from_its_beginning(
    faced: Faced, monkeypatch: pytest.MonkeyPatch, wait_seconds: float
) -> None:
    connected, send, silent = Session._refuse_a_pooler, Session._send, contextlib.ExitStack()

    def send_and_cease(session: Session, function: str) -> None:
        silent.enter_context(standing_still(session.backend))
        send(session, function)

    monkeypatch.setattr(session_module, "SILENCE_SECONDS", 0.2)
    if wait_seconds > 1:
        monkeypatch.setattr(Session, "_refuse_a_pooler", lambda session: (connected(session), session.cancel()))
    monkeypatch.setattr(Session, "_send", send_and_cease)
    answer = faced.actor().begin(lambda: lock_of(faced).acquire(wait_seconds=wait_seconds))
    with silent, pytest.raises(LockUnavailable, match="did not answer"):
        answer.result(30)


def test_what_the_server_refuses_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE nobody_special LOGIN")
    try:
        with AdvisoryLock("till") as lock, monkeypatch.context() as other:
            other.setitem(connection.settings_dict, "USER", "nobody_special")
            with pytest.raises(LockError, match="refused: permission denied") as refused:
                lock.force_release()
        assert not isinstance(refused.value, LockUnavailable)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP ROLE nobody_special")


def test_limits_for_requests_do_not_end_it_and_dead_peers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = "-c statement_timeout=15000 -c lock_timeout=15000 -c idle_session_timeout=15000"
    options = {**connection.settings_dict["OPTIONS"], "options": f"{limits} -c synchronous_commit=off"}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    with AdvisoryLock("till"):
        ((session,),) = postgres._desk.holds.values()
        names = ["idle_session_timeout", "lock_timeout", "statement_timeout", "synchronous_commit"]
        rows = session._connection.execute(
            "SELECT name, setting FROM pg_settings WHERE name = ANY(%s) ORDER BY name", [names]
        ).fetchall()
        assert rows == list(zip(names, ["0", "0", "0", "on"], strict=True))
        assert session._connection.info.get_parameters()["keepalives_idle"] == "10"


def test_a_forks_child_holds_nothing_and_breaks_nothing(pool: Pool) -> None:
    (process,) = pool(1)
    assert process.do(fork_while_holding) == (0, False)


def fork_while_holding() -> tuple[int, bool]:
    """(exit code of a child that does what it can to the lock, whether we have lost it)."""
    lock = AdvisoryLock("till")
    assert lock.acquire()
    if (child := os.fork()) == 0:
        taken = lock.held or lock.acquire(wait_seconds=0)
        with contextlib.suppress(NotHeld):
            lock.release()
            taken = True
        postgres._desk.holds.clear()
        gc.collect()
        os._exit(taken)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lock.release()  # not LockLost
    return code, lock.lost


def test_tokens_grow_over_a_crash_of_the_server(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name)
    tokens = []
    for _ in range(2):
        with EmbeddedServers(open_folder, durable=False) as servers:
            for _ in range(5):
                session = Session("till", named("us"), {"conninfo": servers.environment["DATABASE_URL"]})
                session.ask(None)
                while session.busy():
                    session.wait(60)
                assert session.answer()
                assert session.let_go()
                tokens.append(session.token)
            pid = int((open_folder / "postgresql" / "postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGQUIT)  # no shutdown: what is only in its memory is gone
    assert tokens == sorted(set(tokens))


def test_a_listener_may_take_a_lock_when_an_acquire_notices_the_loss() -> None:
    heard = threading.Event()

    def hear(*_: Any) -> None:
        with AdvisoryLock("drawer"):
            heard.set()

    lock, actor = AdvisoryLock("till", on_lost=hear), Actor()
    assert actor.do(lock.acquire)
    terminate()
    for verb in (lock.acquire, lock.release):
        with pytest.raises(LockLost):
            actor.do(verb)
    actor.end()
    assert heard.is_set()
    until(lambda: "locks-sessions" not in {one.name for one in threading.enumerate()})


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_lost_session_takes_the_next_sockets_messages_from_nobody(asks_first: bool) -> None:
    """libpq closes a socket at its end, and the next one gets its number."""
    ends: list[int] = []

    async def scenario() -> None:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        lock = AsyncAdvisoryLock("till", on_lost=lambda _, token: ends.append(token))
        assert await lock.acquire()
        number, token = lock._hold().fileno(), lock.token
        at_once(terminate)  # so that the loop has seen nothing yet
        if asks_first:
            until(lambda: lock.lost)
        while not ends:
            await asyncio.sleep(0)
        with contextlib.ExitStack() as opened:
            ends_of: dict[int, socket.socket] = {}
            while number not in ends_of:
                first, second = (opened.enter_context(each) for each in socket.socketpair())
                ends_of |= {first.fileno(): second, second.fileno(): first}
            loop.add_reader(number, readable.set)
            with pytest.raises(LockLost):
                await lock.release()
            ends_of[number].send(b"for the next one")
            await asyncio.wait_for(readable.wait(), 30)
            loop.remove_reader(number)
        assert ends == [token]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_held_until_the_commit(faced: Faced) -> None:
    other, lock = faced.actor(), lock_of(faced)
    with transaction.atomic():
        transaction_lock("till")
        transaction_lock("till", wait_seconds=0)
        assert other.do(lambda: lock.acquire(wait_seconds=0)) is False
        owner = other.do(lock.owner)
        assert owner.name.endswith(f"/{connection.connection.info.backend_pid}")
        assert (owner.token, owner.since is not None) == (None, True)
        answer = other.begin(lock.acquire)
        waits(1)
    assert answer.result(30) is True
    with transaction.atomic(), pytest.raises(LockTimeout):
        transaction_lock("till", wait_seconds=0)
    other.do(lock.release)


def test_shared_with_readers_of_any_kind(faced: Faced) -> None:
    read, write = lock_of(faced, shared=True), lock_of(faced)
    reader, writer = faced.actors(2)
    with transaction.atomic():
        transaction_lock("till", shared=True, wait_seconds=0)
        assert reader.do(lambda: read.acquire(wait_seconds=0)) is True
        with pytest.raises(LockTimeout):
            transaction_lock("till", wait_seconds=0)
    answer = writer.begin(write.acquire)
    waits(1)
    with transaction.atomic(), pytest.raises(LockTimeout):
        transaction_lock("till", shared=True, wait_seconds=0.01)  # a reader passes no writer
    reader.do(read.release)
    assert answer.result(30) is True
    writer.do(write.release)


def test_without_a_transaction_it_is_refused(accounts: Any) -> None:
    for wait_seconds in (None, 0, 0.01):
        with pytest.raises(LockError, match="no transaction is open"):
            transaction_lock("till", wait_seconds=wait_seconds)
        with pytest.raises(LockError, match="no transaction is open"):
            locked(accounts.objects.all(), wait_seconds=wait_seconds)


def test_a_wait_in_vain_leaves_the_transaction_as_it_was_and_holds_no_row(accounts: Any, other: Actor) -> None:
    other.do(lambda: transaction_lock("till"))
    assert keys(other.do(lambda: locked(accounts.objects.filter(pk=3)))) == [3]
    with transaction.atomic():
        asked("SELECT set_config('lock_timeout', '4321ms', true)")
        accounts.objects.filter(pk=4).update(balance=5)
        for wait_seconds in (0, 0.01):
            with pytest.raises(LockTimeout):
                transaction_lock("till", wait_seconds=wait_seconds)
            with pytest.raises(LockTimeout):
                locked(accounts.objects.filter(pk__lt=4), wait_seconds=wait_seconds)
            assert asked("SHOW lock_timeout") == ["4321ms"]
        assert keys(other.do(lambda: locked(accounts.objects.filter(pk__lt=3), wait_seconds=0))) == [1, 2]
        transaction_lock("another", wait_seconds=20)
        assert keys(locked(accounts.objects.filter(pk=4), wait_seconds=20)) == [4]
        assert asked("SHOW lock_timeout") == ["4321ms"]
        asked("SELECT set_config('statement_timeout', '500ms', true)")
        with pytest.raises(LockTimeout):  # which counts as a wait in vain
            transaction_lock("till")
    assert asked("SHOW lock_timeout") == ["0"]
    assert accounts.objects.get(pk=4).balance == 5


def test_other_errors_are_not_taken_for_a_wait(accounts: Any) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        locked(accounts.objects.extra(where=["1 / (balance - balance) = 1"]))


def keys(rows: list[Any]) -> list[int]:
    return [row.pk for row in rows]


def test_rows_are_locked_in_the_order_of_their_keys(accounts: Any, other: Actor) -> None:
    """Who waits for the first has none of the later ones, whatever order it asked for."""
    with transaction.atomic():
        assert keys(locked(accounts.objects.filter(pk=1))) == [1]
        answer = other.begin(lambda: locked(accounts.objects.order_by("-pk")))
        waits(1)
        assert keys(locked(accounts.objects.filter(pk__gt=1), wait_seconds=0)) == [2, 3, 4]
    assert keys(answer.result(30)) == [1, 2, 3, 4]


def test_locked_rows_are_skipped(accounts: Any, other: Actor) -> None:
    first = other.do(lambda: locked(accounts.objects.order_by("pk")[:2], skip_locked=True))
    with transaction.atomic():
        second = locked(accounts.objects.all(), skip_locked=True)
    assert (keys(first), keys(second)) == ([1, 2], [3, 4])


def test_rows_of_joined_tables_are_left_alone(other: Actor) -> None:
    user, group = User.objects.create_user("ann"), Group.objects.create(name="staff")
    user.groups.add(group)
    with transaction.atomic():
        assert locked(User.objects.filter(groups__name="staff")) == [user]
        assert other.do(lambda: locked(Group.objects.all(), wait_seconds=0)) == [group]
        with pytest.raises(LockTimeout):
            other.do(lambda: locked(User.objects.all(), wait_seconds=0))


def test_what_would_not_be_in_order_is_refused(accounts: Any) -> None:
    with transaction.atomic():
        with pytest.raises(ValueError, match="before it is taken"):
            locked(accounts.objects.order_by("-pk")[:2])
        with pytest.raises(ValueError, match="locks no rows of a union"):
            locked(accounts.objects.filter(pk=1).union(accounts.objects.filter(pk=2)))
        with pytest.raises(ValueError, match="skip_locked does not wait"):
            locked(accounts.objects.all(), skip_locked=True, wait_seconds=1)
