"""Holders and waiters as processes that are killed, stopped and forked; leases are short, to end in time."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from idempotency import locks
from idempotency.locks.engine import holder, holds, threads
from tests.integration.idempotency.locks.actors import Actor, until
from tests.integration.idempotency.locks.conftest import Bench, a_bench
from tests.integration.idempotency.locks.worker import Worker, workers


@pytest.fixture
def desk(servers: Callable[[str], Any]) -> Iterator[Bench]:
    """Threads over one Redis."""
    with a_bench("Redis", servers("Redis"), tasks=False) as made:
        yield made


@pytest.fixture
def hands(desk: Bench) -> Iterator[Callable[[int], list[Worker]]]:
    with_them = []

    def some(count: int) -> list[Worker]:
        context = workers(desk.servers.url, count)
        with_them.append(context)
        return context.__enter__()

    yield some
    for context in with_them:
        context.__exit__(None, None, None)


Hands = Callable[[int], list[Worker]]


@pytest.mark.parametrize("kind", ["Lock", "FairLock"])
class TestKilled:
    def test_a_dead_holder_is_followed_when_its_lease_ends(self, desk: Bench, hands: Hands, kind: str) -> None:
        first, second = hands(2)
        assert first.do("lock.acquire(lease_seconds=0.5)", kind=kind) is True
        second.begin("lock.acquire()", kind=kind)
        desk.waits(1)
        first.kill()
        assert second.answer() is True

    def test_a_dead_waiter_at_the_head_is_passed_over_at_once(self, desk: Bench, hands: Hands, kind: str) -> None:
        first, dead, third = hands(3)
        assert first.do("lock.acquire()", kind=kind) is True
        dead.begin("lock.acquire()", kind=kind)
        desk.waits(1)
        third.begin("lock.acquire()", kind=kind)
        desk.waits(2)
        dead.kill()
        assert first.do("lock.release()", kind=kind) is None
        # it got the lock by the release itself, and did not find it free later: no second look was needed
        assert third.answer() is True
        assert third.do("lock._hold().confirmed or lock._hold().due_at is not None", kind=kind) is True

    def test_a_stopped_waiter_does_not_keep_what_it_was_granted(
        self, desk: Bench, hands: Hands, kind: str
    ) -> None:
        first, stopped, third = hands(3)
        assert first.do("lock.acquire()", kind=kind) is True
        stopped.begin("lock.acquire()", kind=kind)
        desk.waits(1)
        third.begin("lock.acquire()", kind=kind)
        desk.waits(2)
        stopped.stop()
        assert first.do("lock.release()", kind=kind) is None
        assert third.answer() is True
        stopped.go_on()
        desk.waits(1)  # it found that it was late, and waits again
        assert third.do("lock.release()", kind=kind) is None
        assert stopped.answer() is True
        assert stopped.do("lock.release()", kind=kind) is None

    def test_a_stopped_holder_is_told_that_it_lost(self, desk: Bench, hands: Hands, kind: str) -> None:
        stopped, second = hands(2)
        assert stopped.do("lock.acquire(lease_seconds=0.3)", kind=kind) is True
        token = stopped.do("lock.token", kind=kind)
        stopped.stop()
        assert second.do("lock.acquire()", kind=kind) is True
        stopped.go_on()
        assert second.do("lock.token", kind=kind) > token
        assert stopped.do("lock.lost", kind=kind) is True
        assert stopped.do("lock.release()", kind=kind) == "LockLost"
        assert second.do("lock.held", kind=kind) is True


def test_the_order_over_processes_is_the_order_of_arrival(desk: Bench, hands: Hands, tmp_path: Path) -> None:
    log = tmp_path / "order"
    everyone = hands(4)
    assert everyone[0].do("lock.acquire()", kind="FairLock") is True
    note = f"(lock.acquire(), os.write(os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'%d'), lock.release())[0]"
    for number, each in enumerate(everyone[1:], start=1):
        each.begin(note.replace("%d", str(number)), kind="FairLock")
        desk.waits(number)
    # who tries once passes nobody, not even in the moment in which it is free
    assert desk.make("FairLock").acquire(wait_seconds=0) is False
    everyone[0].do("lock.release()", kind="FairLock")
    assert [each.answer() for each in everyone[1:]] == [True] * 3
    assert log.read_text() == "123"


def test_one_at_a_time_and_no_update_lost(desk: Bench, hands: Hands, tmp_path: Path) -> None:
    """A counter in a file is read and written under the lock by processes that all run at once."""
    counter, history = tmp_path / "counter", tmp_path / "history"
    counter.write_text("0")
    body = (
        f"[(lock.acquire(), open({str(history)!r}, 'a').write(f'+{{os.getpid()}} {{lock.token}}\\n'), "
        f"open({str(counter)!r}, 'r+').write(str(int(open({str(counter)!r}).read()) + 1)), "
        f"open({str(history)!r}, 'a').write(f'-{{os.getpid()}} {{lock.token}}\\n'), lock.release()) "
        "for _ in range(50)] and 1"
    )
    everyone = hands(4)
    for each in everyone:
        each.begin(body)
    assert [each.answer() for each in everyone] == [1] * 4
    assert counter.read_text() == "200"
    told = history.read_text().split("\n")[:-1]
    tokens = [int(line.split()[1]) for line in told[::2]]
    assert [line[1:] for line in told[::2]] == [line[1:] for line in told[1::2]]
    assert tokens == sorted(set(tokens))


def named(name: str) -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == name}


def test_a_thousand_waiters_have_one_subscriber(desk: Bench) -> None:
    others = named("locks-subscriber")
    with desk.servers.data_nodes() as (server,):
        before = {each["id"] for each in server.client_list(_type="pubsub")}
    assert desk.make("Lock").acquire()
    done = threading.Semaphore(0)

    def wait() -> None:
        lock = desk.make("Lock")
        assert lock.acquire()
        lock.release()
        done.release()

    everyone = [threading.Thread(target=wait, daemon=True) for _ in range(1000)]
    for each in everyone:
        each.start()
    desk.waits(1000)
    with desk.servers.data_nodes() as (server,):
        now = {each["id"] for each in server.client_list(_type="pubsub")}
    assert now
    assert len(now - before) <= 1
    assert len(named("locks-subscriber") - others) <= 1
    desk.make("Lock").release()
    for _ in everyone:
        assert done.acquire(timeout=60)
    for each in everyone:
        each.join(30)


def test_a_thousand_holds_have_one_watchdog_and_one_batch(desk: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "RENEW_AFTER", 1 / 30)  # of a lease of 30 seconds
    others = named("locks-watchdog")
    held = [desk.make("Lock", f"thing {number}") for number in range(1000)]
    for lock in held:
        assert lock.acquire()
    with desk.servers.data_nodes() as (server,):
        server.config_resetstat()
        ends = [lock._hold().ends_at for lock in held]
        until(lambda: all(lock._hold().ends_at > end for lock, end in zip(held, ends, strict=True)))
        commands = server.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert len(named("locks-watchdog") - others) <= 1  # hubs of other tests may have theirs
    assert commands <= 10  # some ticks, never one a lock
    for lock in held:
        lock.release()


class TestFork:
    def test_a_child_does_not_hold_what_its_parent_holds(self, desk: Bench) -> None:
        lock = desk.make("Lock")
        assert lock.acquire()
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()

        def child() -> None:
            theirs.send((lock.held, lock.acquire(wait_seconds=0), holder.process))
            theirs.send(lock.acquire())  # waits, with a subscriber and a watchdog of its own
            theirs.send(sorted(each.name for each in threading.enumerate() if each.name.startswith("locks-")))
            lock.release()

        process = context.Process(target=child)
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


def test_permits_of_one_machine_come_back_from_the_dead(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    semaphore = locks.HostSemaphore("cpu", permits=2, folder=tmp_path)
    ours, theirs = context.Pipe()

    def child() -> None:
        theirs.send([semaphore.acquire(), semaphore.acquire(), semaphore.acquire(wait_seconds=0)])
        theirs.recv()

    process = context.Process(target=child)
    process.start()
    assert ours.recv() == [True, True, False]
    assert semaphore.acquire(wait_seconds=0) is False
    process.kill()
    process.join(30)
    assert semaphore.acquire() is True
    with semaphore:
        assert semaphore.held == 2
    semaphore.release()
    with pytest.raises(locks.NotHeld):
        semaphore.release()


def test_what_a_forked_child_has_open_too_is_given_back(tmp_path: Path) -> None:
    """A permit, and the place at the head of the line."""
    semaphore, head = locks.HostSemaphore("cpu", permits=1, folder=tmp_path), Actor()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        theirs.send("here")
        theirs.recv()

    def line_is_taken() -> bool:
        file = semaphore._locked("line")
        if file is not None:
            os.close(file)
        return file is None

    assert semaphore.acquire()
    heading = head.begin(lambda: semaphore.acquire(wait_seconds=5))
    until(line_is_taken)
    process = context.Process(target=child)
    process.start()
    assert ours.recv() == "here"
    semaphore.release()
    assert heading.result(30) is True
    head.do(semaphore.release)
    assert semaphore.acquire(wait_seconds=0) is True
    ours.send("go")
    process.join(30)
    semaphore.release()
    head.end()
