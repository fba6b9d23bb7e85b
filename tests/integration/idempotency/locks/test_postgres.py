"""PostgreSQL's locks on real sessions and processes: who holds, who waits, and what ends a hold."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import DatabaseError, connection, connections, transaction

from idempotency.locks import postgres
from idempotency.locks.engine.holder import named
from idempotency.locks.engine.session import Session
from idempotency.locks.errors import LockError, LockLost, LockTimeout, LockUnavailable, NotHeld, UpgradeRefused
from idempotency.locks.postgres import AdvisoryLock, AsyncAdvisoryLock, locked, transaction_lock
from shop.devserver.embedded import EmbeddedServers
from tests.integration.idempotency.locks.actors import Actor, TaskActor, a_loop, until
from tests.integration.idempotency.locks.database_processes import (
    Process,
    account_model,
    account_table,
    meet,
    processes,
)

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 15


@pytest.fixture
def start(transactional_db: None) -> Iterator[Callable[[int], list[Process]]]:
    with processes() as starter:
        yield starter


@pytest.fixture
def accounts(transactional_db: None) -> Iterator[Any]:
    """Rows 1 to 4."""
    with account_table(4) as model:
        yield model


class Hall:
    """One face of the lock, and its holders."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.lock: Any = AdvisoryLock if loop is None else AsyncAdvisoryLock
        self._actors: list[Any] = []

    def actor(self) -> Any:
        self._actors.append(Actor() if self.loop is None else TaskActor(self.loop))
        return self._actors[-1]

    def within(self, lock: Any, job: Callable[[], Any]) -> Callable[[], Any]:
        """`job` in the lock's `with`."""

        def blocking() -> None:
            with lock:
                job()

        async def awaited() -> None:
            async with lock:
                job()

        return blocking if self.loop is None else awaited

    def close(self) -> None:
        for actor in self._actors:
            actor.end()


@pytest.fixture(params=["threads", "asyncio"])
def hall(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Hall]:
    if request.param == "threads":
        made = Hall(None)
        yield made
        made.close()
    else:
        with a_loop() as loop:
            made = Hall(loop)
            yield made
            made.close()


def abandon_the_dead() -> None:
    for session in postgres._desk.pop_dead():
        session.abandon()


@pytest.fixture(autouse=True)
def _nothing_is_left(transactional_db: None) -> Iterator[None]:
    """No test leaves a session behind, holding or waiting."""
    yield
    abandon_the_dead()
    assert not postgres._desk.holds
    until(lambda: not sessions(), "no lock's session is left")


def asked(question: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(question, parameters)
        return [row[0] for row in cursor.fetchall()]


def sessions() -> list[int]:
    """Backends of the locks' connections."""
    return asked(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'lock %%' AND datname = current_database()"
    )


def waiting() -> int:
    """Who waits for a lock of any kind."""
    return len(asked("SELECT pid FROM pg_locks WHERE NOT granted"))


def waits(count: int) -> None:
    until(lambda: waiting() == count, f"{count} wait")


def terminate() -> None:
    """The holder's backend is ended, and gone afterwards."""
    ended = asked("SELECT pg_terminate_backend(pid, 30000) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    assert ended == [True]


# what processes do

_held: dict[str, AdvisoryLock] = {}


def take(name: str) -> int | None:
    lock = _held[name] = AdvisoryLock(name, wait_seconds=60)
    assert lock.acquire()
    return lock.token


def give(name: str) -> None:
    _held.pop(name).release()


def count_up(folder: Path) -> None:
    """Adds one to a number that nothing but the lock protects; fails if another is inside."""
    lock = AdvisoryLock("count", wait_seconds=60)
    meet()
    for _ in range(ROUNDS):
        with lock:
            os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
            number = int((folder / "number").read_text())
            (folder / "number").write_text(str(number + 1))
            (folder / "inside").unlink()


def fork_while_holding() -> tuple[int, bool]:
    """(exit code of a child that does what it can to the lock, whether we still hold it)."""
    lock = AdvisoryLock("till")
    assert lock.acquire()
    pid = os.fork()
    if pid == 0:
        held, taken = lock.held, lock.acquire(wait_seconds=0)
        try:
            lock.release()
        except NotHeld:
            refused = True
        postgres._desk.holds.clear()
        gc.collect()
        os._exit(0 if refused and not held and not taken else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    lock.release()  # not LockLost
    return code, lock.lost


def lock_rows(descending: bool) -> None:
    model = account_model()
    meet()
    for _ in range(ROUNDS):
        with transaction.atomic():
            rows = locked(model.objects.order_by("-pk" if descending else "pk"))
            for row in rows:
                model.objects.filter(pk=row.pk).update(balance=row.balance + 1)


# by name, for a session


def test_one_process_at_a_time(start: Any, tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    crowd = start(3)
    for each in crowd:
        each.begin(count_up, tmp_path)
    for each in crowd:
        each.result()
    assert (tmp_path / "number").read_text() == str(3 * ROUNDS)


def test_one_holder_and_only_he_releases(hall: Hall) -> None:
    lock = hall.lock("till")
    first, second = hall.actor(), hall.actor()
    assert first.do(lock.acquire) is True
    assert first.do(lambda: (lock.held, lock.lost)) == (True, False)
    assert second.do(lambda: (lock.held, lock.lost, lock.token)) == (False, False, None)
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
    with pytest.raises(NotHeld):
        second.do(lock.release)
    answer = second.begin(lock.acquire)
    waits(1)
    first.do(lock.release)
    assert answer.result(30) is True
    with pytest.raises(NotHeld):
        first.do(lock.release)
    second.do(lock.release)


def test_reentrant_over_lock_objects_and_free_after_the_last_release(hall: Hall) -> None:
    lock, same = hall.lock("till"), hall.lock("till")
    first, second = hall.actor(), hall.actor()
    assert first.do(lock.acquire)
    assert first.do(same.acquire)
    assert first.do(lambda: lock.token == same.token)
    assert len(sessions()) == 1
    first.do(same.release)
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
    first.do(lock.release)
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is True
    second.do(lock.release)


def test_tokens_grow_from_holder_to_holder(hall: Hall, start: Any) -> None:
    (process,) = start(1)
    lock = hall.lock("till")
    actor = hall.actor()
    tokens = []
    for _ in range(3):
        assert actor.do(lock.acquire)
        tokens.append(actor.do(lambda: lock.token))
        actor.do(lock.release)
        tokens.append(process.do(take, "till"))
        process.do(give, "till")
    assert tokens == sorted(set(tokens))


async def test_a_child_task_is_another_holder(transactional_db: None) -> None:
    async with AsyncAdvisoryLock("till") as lock:
        assert await asyncio.create_task(lock.acquire(wait_seconds=0)) is False
        with pytest.raises(NotHeld):
            await asyncio.create_task(lock.release())


def test_a_named_owner_crosses_threads(hall: Hall) -> None:
    lock = hall.lock("till", owner="request 1")
    first, second = hall.actor(), hall.actor()
    assert first.do(lock.acquire)
    assert second.do(lambda: lock.held) is True
    assert second.do(lambda: hall.lock("till").acquire(wait_seconds=0)) is False
    second.do(lock.release)
    assert first.do(lambda: lock.held) is False


def test_who_waits_in_vain_is_told_and_leaves_nothing(hall: Hall) -> None:
    lock, hurried = hall.lock("till"), hall.lock("till", wait_seconds=0.01)
    first, second = hall.actor(), hall.actor()
    assert first.do(lock.acquire)
    assert second.do(hurried.acquire) is False
    with pytest.raises(LockTimeout):
        second.do(hall.within(hurried, lambda: pytest.fail("inside")))
    assert second.do(lambda: hurried.acquire(wait_seconds=0)) is False
    until(lambda: len(sessions()) == 1)
    first.do(lock.release)


def test_other_names_are_other_locks(hall: Hall) -> None:
    one, other = hall.lock("till"), hall.lock("柜台")
    first, second = hall.actor(), hall.actor()
    assert first.do(lambda: one.acquire(wait_seconds=0))
    assert second.do(lambda: other.acquire(wait_seconds=0))
    first.do(one.release)
    second.do(other.release)


def test_free_when_the_holders_process_is_killed(start: Any, hall: Hall) -> None:
    (process,) = start(1)
    process.do(take, "till")
    lock, actor = hall.lock("till"), hall.actor()
    answer = actor.begin(lock.acquire)
    waits(1)
    process.kill()
    assert answer.result(30) is True
    actor.do(lock.release)


def test_free_when_a_waiters_process_was_killed(start: Any, hall: Hall) -> None:
    (process,) = start(1)
    lock, first, second = hall.lock("till"), hall.actor(), hall.actor()
    assert first.do(lock.acquire)
    process.begin(take, "till")
    waits(1)
    process.kill()
    answer = second.begin(lock.acquire)
    waits(2)
    first.do(lock.release)
    assert answer.result(30) is True
    second.do(lock.release)


def test_a_terminated_backend_is_a_lost_lock(hall: Hall) -> None:
    lock, first, second = hall.lock("till"), hall.actor(), hall.actor()
    assert first.do(lock.acquire)
    assert first.do(lock.acquire)
    terminate()
    assert first.do(lambda: (lock.held, lock.lost)) == (False, True)
    with pytest.raises(LockLost):
        first.do(lock.acquire)
    assert second.do(lambda: lock.acquire(wait_seconds=0)) is True
    for _ in range(2):
        with pytest.raises(LockLost):
            first.do(lock.release)
    assert first.do(lambda: lock.lost) is False
    assert second.do(lambda: lock.held) is True
    second.do(lock.release)


def test_a_lost_lock_is_told_on_exit_unless_an_error_says_more(hall: Hall) -> None:
    lock, actor = hall.lock("till"), Actor()
    with pytest.raises(LockLost):
        hall.actor().do(hall.within(lock, lambda: actor.do(from_a_thread(terminate))))

    def fail() -> None:
        actor.do(from_a_thread(terminate))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hall.actor().do(hall.within(lock, fail))
    actor.end()


def from_a_thread(job: Callable[[], Any]) -> Callable[[], Any]:
    """`job`, and its thread's connection closed."""

    def run() -> Any:
        try:
            return job()
        finally:
            connections.close_all()

    return run


def test_a_waiter_whose_backend_is_terminated_is_told(hall: Hall) -> None:
    lock, first, second = hall.lock("till"), hall.actor(), hall.actor()
    assert first.do(lock.acquire)
    answer = second.begin(lock.acquire)
    waits(1)
    assert asked("SELECT pg_terminate_backend(pid, 30000) FROM pg_locks WHERE NOT granted") == [True]
    with pytest.raises(LockUnavailable):
        answer.result(30)
    first.do(lock.release)


def test_a_server_that_is_away_is_told(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = hall.actor()
    with monkeypatch.context() as away:
        away.setitem(connection.settings_dict, "HOST", "/nowhere")
        with pytest.raises(LockUnavailable):
            actor.do(hall.lock("till").acquire)


def test_limits_for_requests_do_not_end_it_and_dead_peers_are_noticed(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_thread_that_ended_without_a_release_is_in_nobodys_way(transactional_db: None) -> None:
    lock = AdvisoryLock("till", wait_seconds=30)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    with lock:
        assert lock.held


def test_a_forks_child_holds_nothing_and_breaks_nothing(start: Any) -> None:
    (process,) = start(1)
    assert process.do(fork_while_holding) == (0, False)


async def test_a_cancelled_waiter_leaves_nothing(transactional_db: None) -> None:
    holder, lock = Actor(), AsyncAdvisoryLock("till")
    blocking = AdvisoryLock("till")
    assert await asyncio.to_thread(holder.do, blocking.acquire)
    task = asyncio.create_task(lock.acquire())
    await asyncio.to_thread(from_a_thread(lambda: waits(1)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(from_a_thread(lambda: until(lambda: waiting() == 0 and len(sessions()) == 1)))
    holder.do(blocking.release)
    assert await lock.acquire(wait_seconds=0) is True
    await lock.release()
    holder.end()


async def test_cancelled_anywhere_it_is_held_or_leaves_nothing(transactional_db: None) -> None:
    lock = AsyncAdvisoryLock("till", wait_seconds=30)
    for turns in range(40):
        task = asyncio.create_task(lock.acquire())
        for _ in range(turns * turns):  # turns of the loop: from its first step to its last
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            assert not postgres._desk.holds
        else:
            assert await task is True
            abandon_the_dead()  # that task is a holder that ended


async def test_more_tasks_than_threads_wait_and_all_get_it(transactional_db: None) -> None:
    lock = AsyncAdvisoryLock("till", wait_seconds=60)
    inside = 0

    async def work() -> None:
        nonlocal inside
        async with lock:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(40)))


def test_tokens_grow_over_a_crash_of_the_server(
    transactional_db: None, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name)
    servers = EmbeddedServers(open_folder, durable=False)
    tokens = []
    for _ in range(2):
        servers.start()
        try:
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
        finally:
            servers.stop()
    assert tokens == sorted(set(tokens))


# by name, for a transaction


def test_held_until_the_commit(hall: Hall) -> None:
    other, lock = hall.actor(), hall.lock("till")
    with transaction.atomic():
        transaction_lock("till")
        transaction_lock("till", wait_seconds=0)
        assert other.do(lambda: lock.acquire(wait_seconds=0)) is False
        answer = other.begin(lock.acquire)
        waits(1)
    assert answer.result(30) is True
    with transaction.atomic(), pytest.raises(LockTimeout):
        transaction_lock("till", wait_seconds=0)
    other.do(lock.release)


@pytest.mark.parametrize("wait_seconds", [None, 0, 0.01])
def test_without_a_transaction_it_is_refused(accounts: Any, wait_seconds: float | None) -> None:
    with pytest.raises(LockError, match="no transaction is open"):
        transaction_lock("till", wait_seconds=wait_seconds)
    with pytest.raises(LockError, match="no transaction is open"):
        locked(accounts.objects.all(), wait_seconds=wait_seconds)


@pytest.mark.parametrize("wait_seconds", [0, 0.01])
def test_a_wait_in_vain_leaves_the_transaction_as_it_was(hall: Hall, wait_seconds: float, accounts: Any) -> None:
    other, lock = hall.actor(), hall.lock("till")
    assert other.do(lock.acquire)
    with transaction.atomic():
        asked("SELECT set_config('lock_timeout', '4321ms', true)")
        accounts.objects.filter(pk=1).update(balance=5)
        with pytest.raises(LockTimeout):
            transaction_lock("till", wait_seconds=wait_seconds)
        assert asked("SHOW lock_timeout") == ["4321ms"]
        transaction_lock("another", wait_seconds=20)
        assert asked("SHOW lock_timeout") == ["4321ms"]
    assert asked("SHOW lock_timeout") == ["0"]
    assert accounts.objects.get(pk=1).balance == 5
    other.do(lock.release)


def test_a_statement_timeout_counts_as_a_wait_in_vain(hall: Hall) -> None:
    other, lock = hall.actor(), hall.lock("till")
    assert other.do(lock.acquire)
    with transaction.atomic():
        asked("SELECT set_config('statement_timeout', '20ms', true)")
        with pytest.raises(LockTimeout):
            transaction_lock("till")
    other.do(lock.release)


def test_other_errors_are_not_taken_for_a_wait(accounts: Any) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        locked(accounts.objects.extra(where=["1 / (balance - balance) = 1"]))


# rows


@pytest.fixture
def other(transactional_db: None) -> Iterator[Actor]:
    """A thread with a transaction of its own, ended in the end."""
    actor = Actor()
    actor.do(lambda: connection.set_autocommit(False))
    yield actor
    actor.do(lambda: (connection.rollback(), connection.close()))
    actor.end()


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


def test_opposite_orders_do_not_deadlock(accounts: Any, start: Any) -> None:
    crowd = start(2)
    for descending, each in enumerate(crowd):
        each.begin(lock_rows, bool(descending))
    for each in crowd:
        each.result()
    assert set(accounts.objects.values_list("balance", flat=True)) == {2 * ROUNDS}


@pytest.mark.parametrize("wait_seconds", [0, 0.01])
def test_a_locked_row_is_told_and_none_is_kept(accounts: Any, other: Actor, wait_seconds: float) -> None:
    assert keys(other.do(lambda: locked(accounts.objects.filter(pk=3)))) == [3]
    with transaction.atomic():
        accounts.objects.filter(pk=4).update(balance=5)
        with pytest.raises(LockTimeout):
            locked(accounts.objects.filter(pk__lt=4), wait_seconds=wait_seconds)
        assert keys(other.do(lambda: locked(accounts.objects.filter(pk__lt=3), wait_seconds=0))) == [1, 2]
        assert keys(locked(accounts.objects.filter(pk=4), wait_seconds=20)) == [4]
        assert asked("SHOW lock_timeout") == ["0"]
    assert accounts.objects.get(pk=4).balance == 5


def test_locked_rows_are_skipped(accounts: Any, other: Actor) -> None:
    first = other.do(lambda: locked(accounts.objects.order_by("pk")[:2], skip_locked=True))
    with transaction.atomic():
        second = locked(accounts.objects.all(), skip_locked=True)
    assert (keys(first), keys(second)) == ([1, 2], [3, 4])


def test_rows_of_joined_tables_are_left_alone(transactional_db: None, other: Actor) -> None:
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
        with pytest.raises(ValueError, match="skip_locked does not wait"):
            locked(accounts.objects.all(), skip_locked=True, wait_seconds=1)


def test_the_server_names_holder_and_waiters(hall: Hall) -> None:
    lock = hall.lock("order:7")
    holder, waiter, other = (hall.actor() for _ in range(3))
    assert other.do(lock.locked) is False
    assert other.do(lock.remaining_seconds) == 0.0
    assert holder.do(lock.acquire)
    assert holder.do(lock.acquire)
    waiting = waiter.begin(lock.acquire)
    until(lambda: other.do(lock.waiters) == 1, "it waits")
    owner = other.do(lock.owner)
    assert (owner.token, owner.holds) == (holder.do(lambda: lock.token), 2)
    assert owner.since.tzinfo is not None
    assert (holder.do(lock.hold_count), other.do(lock.hold_count)) == (2, 0)
    assert other.do(hall.lock("another").locked) is False
    holder.do(lock.release)
    holder.do(lock.release)
    assert waiting.result(30)
    waiter.do(lock.release)
    with transaction.atomic():
        transaction_lock("order:7")
        found = other.do(lock.owner)
        assert found.name.endswith(f"/{connection.connection.info.backend_pid}")
        assert (found.token, found.since is not None) == (None, True)


def test_a_wait_is_ended_by_another_thread(hall: Hall) -> None:
    lock = hall.lock("order:7")
    holder, waiter, other = (hall.actor() for _ in range(3))
    assert holder.do(lock.acquire)
    for _ in range(2):
        waiting = waiter.begin(lock.acquire)
        until(lambda: other.do(lock.waiters) == 1, "it waits")
        other.do(lock.cancel)
        assert waiting.result(30) is False
        assert other.do(lock.waiters) == 0
    holder.do(lock.release)
    assert waiter.do(lock.acquire)
    waiter.do(lock.release)


def test_a_holder_is_put_out(hall: Hall) -> None:
    lock = hall.lock("order:7")
    holder, waiter, other = (hall.actor() for _ in range(3))
    assert other.do(lock.force_release) is False
    assert holder.do(lock.acquire)
    token = holder.do(lambda: lock.token)
    waiting = waiter.begin(lock.acquire)
    until(lambda: other.do(lock.waiters) == 1, "it waits")
    assert other.do(lock.force_release) is True
    assert waiting.result(30) is True
    assert waiter.do(lambda: lock.token) > token
    until(lambda: holder.do(lambda: lock.lost))
    with pytest.raises(LockLost):
        holder.do(lock.release)
    waiter.do(lock.release)


def test_the_end_of_with_may_be_quiet_about_a_loss(transactional_db: None) -> None:
    lock = AdvisoryLock("order:7", raise_on_lost=False)
    with lock:
        lock.force_release()
    assert not lock.locked()


def test_readers_share_and_a_writer_excludes_them(hall: Hall) -> None:
    read, write = hall.lock("order:7", shared=True), hall.lock("order:7")
    first, second, writer = (hall.actor() for _ in range(3))
    assert first.do(read.acquire)
    assert second.do(lambda: read.acquire(wait_seconds=0))
    assert len(second.do(read.state).owners) == 2
    with pytest.raises(UpgradeRefused):
        first.do(lambda: write.acquire(wait_seconds=0))
    waiting = writer.begin(write.acquire)
    waits(1)
    with transaction.atomic(), pytest.raises(LockTimeout):
        transaction_lock("order:7", shared=True, wait_seconds=0.01)  # a reader passes no writer
    first.do(read.release)
    second.do(read.release)
    assert waiting.result(30) is True
    assert writer.do(read.acquire)  # a writer may
    writer.do(write.release)
    assert first.do(lambda: read.acquire(wait_seconds=0)) is False
    writer.do(read.release)
    with transaction.atomic():
        transaction_lock("order:7", shared=True, wait_seconds=0)
        assert first.do(lambda: read.acquire(wait_seconds=0)) is True
        with pytest.raises(LockTimeout):
            transaction_lock("order:7", wait_seconds=0)
    first.do(read.release)


def test_a_holder_that_may_not_come_in_twice(hall: Hall) -> None:
    once = hall.lock("order:7", reentrant=False, owner="both")
    first, second = hall.actor(), hall.actor()
    assert first.do(once.acquire)
    waiting = second.begin(once.acquire)
    waits(1)
    first.do(once.release)
    assert waiting.result(30) is True
    second.do(once.release)


def test_a_listener_hears_how_it_ended(hall: Hall) -> None:
    ends: list[tuple[str, str, int]] = []
    kinds = ("released",) if hall.loop is None else ("lost", "released")
    calls: Any = {f"on_{end}": lambda name, token, end=end: ends.append((end, name, token)) for end in kinds}
    lock, actor = hall.lock("till", **calls), hall.actor()
    with pytest.raises(TypeError, match="a session has no lease"):
        hall.lock("till", on_expired=print)
    if hall.loop is None:
        with pytest.raises(TypeError, match="ask `lost`"):
            hall.lock("till", on_lost=print)
    assert actor.do(lock.acquire)
    tokens = [actor.do(lambda: lock.token)]
    actor.do(lock.release)
    assert ends == [("released", "till", tokens[0])]
    assert actor.do(lock.acquire)
    tokens.append(actor.do(lambda: lock.token))
    terminate()
    if hall.loop is not None:
        until(lambda: len(ends) == 2)
        assert ends[1] == ("lost", "till", tokens[1])
    with pytest.raises(LockLost):
        actor.do(lock.release)
    assert len(ends) == len(kinds)


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_lost_session_takes_the_next_sockets_messages_from_nobody(
    transactional_db: None, asks_first: bool
) -> None:
    """libpq closes the socket as soon as it sees its end, and the system gives its number to the next one."""
    ends: list[int] = []

    async def scenario() -> None:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        lock = AsyncAdvisoryLock("till", on_lost=lambda _, token: ends.append(token))
        assert await lock.acquire()
        number, token = lock._hold().fileno(), lock.token
        ending = threading.Thread(target=ended_elsewhere)
        ending.start()
        ending.join()  # so that the loop has seen nothing yet
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

    def ended_elsewhere() -> None:
        try:
            terminate()
        finally:
            connection.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
