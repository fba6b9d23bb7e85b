"""Holders and waiters as processes that are killed, stopped and forked."""

import multiprocessing
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from idempotency import locks
from idempotency.locks.engine import holder, holds, threads
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench
from tests.integration.idempotency.locks.processes import Hand, Pool, hands

FORK = multiprocessing.get_context("fork")


@pytest.mark.parametrize("kind", ["Lock", "FairLock"])
def test_what_a_process_held_or_waited_for_when_it_stopped_or_died_is_in_nobodys_way(
    desk: Bench, pool: Pool, kind: str
) -> None:
    name, (first, second, third) = hands(pool(3), desk.servers.url, kind, claim_seconds=1.0)
    assert first.do("lock.acquire(lease_seconds=0.3)") is True
    token = first.do("lock.token")
    first.stop()
    assert second.do("lock.acquire()") is True  # when its lease has ended
    first.go_on()
    assert second.do("lock.token") > token
    assert first.do("lock.lost") is True
    with pytest.raises(locks.LockLost):
        first.do("lock.release()")
    assert second.do("lock.held") is True
    # a stopped waiter does not keep what it was granted
    for count, each in enumerate((first, third), start=1):
        each.begin("lock.acquire()")
        desk.waits(count, name)
    first.stop()
    second.do("lock.release()")
    assert third.answer() is True
    first.go_on()
    desk.waits(1, name)  # it found that it was late, and waits again
    third.do("lock.release()")
    assert first.answer() is True
    # a dead waiter at the head is passed over at once
    for count, each in enumerate((third, second), start=1):
        each.begin("lock.acquire()")
        desk.waits(count, name)
    third.kill()
    first.do("lock.release()")
    assert second.answer() is True
    # by the release itself: it did not find it free later, and no second look was needed
    assert second.do("lock._hold().confirmed or lock._hold().due_at is not None") is True
    second.do("lock.release()")
    # a dead holder is followed when its lease ends
    assert second.do("lock.acquire(lease_seconds=0.5)") is True
    first.begin("lock.acquire()")
    second.kill()
    assert first.answer() is True
    first.do("lock.release()")


def test_the_order_over_processes_is_the_order_of_arrival(desk: Bench, pool: Pool, tmp_path: Path) -> None:
    log = tmp_path / "order"
    name, everyone = hands(pool(3), desk.servers.url, "FairLock")
    ours = desk.make("FairLock", name)
    assert ours.acquire()
    note = "(lock.acquire(), os.write(os.open({!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'{}'), lock.release())[0]"
    for number, each in enumerate(everyone, start=1):
        each.begin(note.format(str(log), number))
        desk.waits(number, name)
    # who tries once passes nobody, not even in the moment in which it is free
    assert desk.make("FairLock", name, owner="another").acquire(wait_seconds=0) is False
    ours.release()
    assert [each.answer() for each in everyone] == [True] * 3
    assert log.read_text() == "123"


COUNT_UP = """[(
    lock.acquire(),
    os.close(os.open({0!r} + "/inside", os.O_CREAT | os.O_EXCL)),
    Path({0!r}, "count").write_text(str(int(Path({0!r}, "count").read_text()) + 1)),
    Path({0!r}, "inside").unlink(),
    lock.token,
    lock.release(),
)[-2] for _ in range(20)]"""


def waits(hand: Hand, count: int) -> None:
    until(lambda: hand.do("lock.waiters()") == count, f"{count} wait")


@pytest.fixture
def address(request: pytest.FixtureRequest, kind: str) -> str:
    """Where a lock of this kind is."""
    if kind == "ZooKeeperLock":
        return str(request.getfixturevalue("zookeeper").hosts)
    return "" if kind == "AdvisoryLock" else str(request.getfixturevalue("desk").servers.url)


OF_POSTGRES = pytest.param("AdvisoryLock", marks=pytest.mark.django_db(transaction=True))


@pytest.mark.parametrize("kind", ["Lock", OF_POSTGRES, "ZooKeeperLock"])
def test_one_at_a_time_and_no_update_lost(pool: Pool, tmp_path: Path, kind: str, address: str) -> None:
    """A number in a file is protected by nothing but the lock; who meets another inside fails."""
    (tmp_path / "count").write_text("0")
    _, (holder, *crowd) = hands(pool(4), address, kind)
    assert holder.do("lock.acquire()")
    for each in crowd:
        each.begin(COUNT_UP.format(str(tmp_path)))
    waits(holder, 3)
    holder.do("lock.release()")
    tokens = [each.answer() for each in crowd]
    assert (tmp_path / "count").read_text() == "60"
    assert all(mine == sorted(set(mine)) for mine in tokens)
    assert len({token for mine in tokens for token in mine}) == 60


@pytest.mark.parametrize("kind", [OF_POSTGRES, "ZooKeeperLock"])
def test_a_session_of_a_killed_process_neither_holds_nor_waits(pool: Pool, kind: str, address: str) -> None:
    _, (holder, waiter, behind, other) = hands(pool(4), address, kind)
    assert holder.do("lock.acquire()")
    token = holder.do("lock.token")
    for count, each in enumerate((other, waiter, behind), start=1):
        each.begin("lock.acquire()")
        waits(holder, count)
    holder.kill()
    assert other.answer() is True
    assert other.do("lock.token") > token
    waiter.kill()
    other.do("lock.release()")
    assert behind.answer() is True
    behind.do("lock.release()")


def named(name: str) -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == name}


def test_hundreds_of_waiters_have_one_subscriber(one: Bench) -> None:
    lock, (holder, *waiters), others = one.make("Lock"), one.actors(301), named("locks-subscriber")
    with one.servers.data_nodes() as (server,):
        before = {each["id"] for each in server.client_list(_type="pubsub")}
        assert holder.do(lock.acquire)
        answers = [each.begin(one.within(lock, lambda: None)) for each in waiters]
        one.waits(300)
        now = {each["id"] for each in server.client_list(_type="pubsub")}
        assert len(now - before) <= 1 <= len(now)
    assert len(named("locks-subscriber") - others) <= 1
    holder.do(lock.release)
    assert [answer.result(60) for answer in answers] == [None] * 300


def test_hundreds_of_holds_have_one_watchdog_and_one_batch(desk: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "RENEW_AFTER", 1 / 30)  # of a lease of 30 seconds
    others = named("locks-watchdog")
    held = [desk.make("Lock", f"thing {number}") for number in range(300)]
    for lock in held:
        assert lock.acquire()
    ends = [lock._hold().ends_at for lock in held]
    commands = desk.commands(
        lambda: until(lambda: all(lock._hold().ends_at > end for lock, end in zip(held, ends, strict=True)))
    )
    assert len(named("locks-watchdog") - others) <= 1  # hubs of other tests may have theirs
    assert 0 < commands["evalsha"] <= 10  # some ticks, never one a lock
    for lock in held:
        lock.release()


def test_a_child_does_not_hold_what_its_parent_holds(desk: Bench) -> None:
    lock = desk.make("Lock")
    assert lock.acquire()
    ours, theirs = FORK.Pipe()

    def child() -> None:
        theirs.send((lock.held, lock.acquire(wait_seconds=0), holder.process))
        theirs.send(lock.acquire())  # waits, with a subscriber and a watchdog of its own
        theirs.send(sorted(each.name for each in threading.enumerate() if each.name.startswith("locks-")))
        lock.release()

    process = FORK.Process(target=child)
    process.start()
    held, taken, name = ours.recv()
    assert (held, taken) == (False, False)
    assert name != holder.process
    desk.waits(1)
    assert lock.held
    lock.release()
    assert ours.recv() is True
    assert ours.recv() == ["locks-subscriber", "locks-watchdog"]
    process.join(30)
    assert process.exitcode == 0
    assert threads.hub_of(desk.client).process == holder.process


@pytest.mark.parametrize("waits", [False, True])
def test_permits_of_one_machine_come_back_from_the_dead_whatever_children_they_have(
    tmp_path: Path, waits: bool
) -> None:
    """A child has open what its parent had: a permit, or the place at the head of the line."""
    semaphore = locks.HostSemaphore("cpu", permits=1, folder=tmp_path)
    ours, theirs = FORK.Pipe()

    def child() -> None:
        if waits:
            threading.Thread(target=semaphore.acquire, daemon=True).start()
            until(lambda: semaphore.waiters() == 1)
        else:
            semaphore.acquire()
        if os.fork() == 0:
            theirs.send(os.getpid())  # its hooks have run
        signal.pause()

    assert not waits or semaphore.acquire()
    process = FORK.Process(target=child)
    process.start()
    grandchild = ours.recv()
    try:
        assert locks.HostSemaphore("cpu", permits=1, folder=str(tmp_path)).acquire(wait_seconds=0) is False
        process.kill()
        process.join()
        if waits:
            semaphore.release()
        assert semaphore.acquire(wait_seconds=0) is True
        semaphore.release()
        with pytest.raises(locks.NotHeld):
            semaphore.release()
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Who may write there must not have a caller empty a file of its own."""
    semaphore, precious = locks.HostSemaphore("cpu", permits=1, folder=tmp_path), tmp_path / "precious"
    precious.write_text("kept")
    next(semaphore._paths("")).symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        semaphore.acquire(wait_seconds=0)
    assert precious.read_text() == "kept"


def test_a_folder_that_another_user_made_first_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    semaphore = locks.HostSemaphore("cpu", permits=1)
    with pytest.raises(PermissionError, match="another user's"):
        semaphore.acquire(wait_seconds=0)
    assert not any(semaphore._folder.iterdir())
