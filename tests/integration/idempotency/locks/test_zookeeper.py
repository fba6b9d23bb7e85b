"""The lock of ZooKeeper on a real one: threads, tasks, processes; sessions that end, answers that do not come."""

import asyncio
import contextlib
import math
import multiprocessing
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState

from idempotency.locks.engine import nodes
from idempotency.locks.engine.nodes import in_order, predecessor
from idempotency.locks.errors import LockLost, LockTimeout, LockUnavailable, NotHeld, UpgradeRefused
from idempotency.locks.zookeeper import (
    ROOT,
    AsyncZooKeeperLock,
    AsyncZooKeeperSemaphore,
    ZooKeeperLock,
    ZooKeeperSemaphore,
)
from shop.devserver.guardian import Guardian
from tests import zookeeper_server
from tests.conftest import a_folder_of_its_own
from tests.integration.idempotency.locks.actors import Actor, TaskActor, a_loop
from tests.integration.idempotency.locks.zookeeper_processes import NAME, WAIT_SECONDS, contend, take_and_tell
from tests.running import until
from tests.zookeeper_server import ZooKeeperServer

spawn = multiprocessing.get_context("spawn")
FOLDER = f"{ROOT}/lock-order%2F7%20%C3%BC"


class Client(KazooClient):
    """Counts how often it lists a queue. `deaf_to` a kind of call: the server does it, and the answer is lost.

    A lost answer comes with a lost connection, as it does outside of tests.
    """

    deaf_to = ""
    lists = 0

    def get_children_async(self, *arguments: Any, **named: Any) -> Any:
        self.lists += 1
        return super().get_children_async(*arguments, **named)

    def create_async(self, *arguments: Any, **named: Any) -> Any:
        return self._unheard("create" if named.get("ephemeral") else "", super().create_async(*arguments, **named))

    def delete_async(self, *arguments: Any, **named: Any) -> Any:
        return self._unheard("delete", super().delete_async(*arguments, **named))

    def _unheard(self, kind: str, answer: Any) -> Any:
        if not kind or self.deaf_to != kind:
            return answer
        self.deaf_to = ""
        told = self.handler.async_result()

        def lose(_: Any) -> None:
            drop(self)
            told.set_exception(ConnectionLoss())

        answer.rawlink(lose)
        return told


def drop(client: KazooClient) -> None:
    """Cut the connection; kazoo makes another one of the same session."""
    client._connection._socket.shutdown(socket.SHUT_RDWR)


def end_session(server: ZooKeeperServer, client: KazooClient) -> None:
    """The server forgets the session of a client that lives: another one closes it in its name."""
    other = KazooClient(server.hosts, client_id=client.client_id)
    other.start()
    other.stop()
    other.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    if reason := zookeeper_server.missing():
        pytest.skip(reason)
    guardian = Guardian()
    with a_folder_of_its_own() as folder:
        made = ZooKeeperServer(guardian, folder / "zookeeper")
        try:
            made.start()
            yield made
        finally:
            guardian.stop_all()


@pytest.fixture
def connect(server: ZooKeeperServer) -> Iterator[Callable[[], Client]]:
    """Makes started clients, each a session of its own; the queue is empty before."""
    made: list[Client] = []

    def one() -> Client:
        client = Client(server.hosts, timeout=20.0)
        client.start()
        made.append(client)
        return client

    one().delete(ROOT, recursive=True) if one().exists(ROOT) else None
    yield one
    for client in made:
        client.stop()
        client.close()


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(16)
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)  # who still waits is told when its client stops


def queued(client: KazooClient) -> list[str]:
    """The queue, in its order (its numbers do not wrap here)."""
    found = client.get_children(FOLDER) if client.exists(FOLDER) else []
    return sorted(found, key=lambda node: node.rpartition("_")[2])


def in_queue(client: KazooClient, count: int) -> None:
    """Until so many stand there."""
    until(lambda: len(queued(client)) == count, WAIT_SECONDS)


@contextlib.contextmanager
def another_process(server: ZooKeeperServer) -> Iterator[tuple[Any, Connection]]:
    """One that takes the lock and keeps it; killed in the end, if not before."""
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=take_and_tell, args=(server.hosts, theirs), daemon=True)
    process.start()
    theirs.close()
    with ours:
        try:
            yield process, ours
        finally:
            process.kill()
            process.join()
            process.close()


# ---- one holder


def test_processes_exclude_each_other_and_tokens_grow(
    server: ZooKeeperServer, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "count").write_text("0")
    barrier = spawn.Barrier(4)
    workers = [spawn.Process(target=contend, args=(server.hosts, tmp_path, barrier, 10)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT_SECONDS)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert (tmp_path / "count").read_text() == "40"
    tokens = [int(line) for line in (tmp_path / "tokens").read_text().split()]
    assert len(tokens) == 40
    assert tokens == sorted(set(tokens))
    assert queued(client) == []


def test_tokens_grow_although_the_numbers_start_anew(client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    with lock:
        (node,) = queued(client)
        earlier = lock.token
        assert earlier == client.exists(f"{FOLDER}/{node}").czxid
    client.delete(FOLDER)
    with lock:
        assert queued(client)[0].rpartition("_")[2] == node.rpartition("_")[2]
        assert lock.token is not None
        assert earlier is not None
        assert lock.token > earlier
    assert lock.token is None


def test_first_come_first_served(connect: Callable[[], Client], threads: ThreadPoolExecutor) -> None:
    client = connect()
    order: list[int] = []

    def come(number: int) -> None:
        with ZooKeeperLock(NAME, client=client if number % 2 else connect()):
            order.append(number)

    with ZooKeeperLock(NAME, client=client):
        waiters = []
        for number in range(6):
            waiters.append(threads.submit(come, number))
            in_queue(client, number + 2)
        assert order == []
    for waiter in waiters:
        waiter.result(WAIT_SECONDS)
    assert order == list(range(6))


def test_the_server_names_holder_and_contenders(
    connect: Callable[[], Client], threads: ThreadPoolExecutor
) -> None:
    holder, waiter = (ZooKeeperLock(NAME, client=connect(), owner=owner) for owner in ("first", "second"))
    assert (holder.locked(), holder.owner(), holder.waiters(), holder.contenders()) == (False, None, 0, [])
    assert holder.acquire()
    assert holder.acquire()
    waiting = threads.submit(waiter.acquire)
    until(lambda: waiter.waiters() == 1)
    owner = waiter.owner()
    assert owner is not None
    assert (owner.name, owner.token, owner.remaining_seconds) == ("named:first", holder.token, math.inf)
    assert owner.since is not None
    assert (holder.hold_count(), waiter.hold_count()) == (2, 0)
    assert waiter.contenders() == ["named:first", "named:second"]
    holder.release()
    holder.release()
    assert waiting.result(30)
    assert waiter.contenders() == ["named:second"]
    waiter.release()


def test_a_wait_is_ended_by_another_thread(client: Client, threads: ThreadPoolExecutor) -> None:
    holder, waiter, other = (
        ZooKeeperLock(NAME, client=client, owner=owner) for owner in ("first", "second", "third")
    )
    assert holder.acquire()
    waiting, staying = threads.submit(waiter.acquire), threads.submit(other.acquire)
    until(lambda: holder.waiters() == 2)
    waiter.cancel()
    assert waiting.result(30) is False
    assert holder.contenders() == ["named:first", "named:third"]
    holder.release()
    assert staying.result(30) is True
    other.release()


def test_names_and_chroots_are_apart(connect: Callable[[], Client], server: ZooKeeperServer) -> None:
    client = connect()
    client.ensure_path("/elsewhere")
    apart = KazooClient(f"{server.hosts}/elsewhere")
    apart.start()
    try:
        with (
            ZooKeeperLock(NAME, client=client),
            ZooKeeperLock(".", client=client),
            ZooKeeperLock("", client=client),
        ):
            assert not ZooKeeperLock(".", client=connect()).acquire(wait_seconds=0)
            with ZooKeeperLock(NAME, client=apart, wait_seconds=0):
                assert len(queued(client)) == 1
    finally:
        apart.stop()
        apart.close()


def test_only_the_next_one_is_woken(
    connect: Callable[[], Client], server: ZooKeeperServer, threads: ThreadPoolExecutor
) -> None:
    holder, *others = (connect() for _ in range(6))
    seen = connect()
    go = [threading.Event() for _ in others]

    def wait_in_line(index: int) -> None:
        with ZooKeeperLock(NAME, client=others[index]):
            go[index].wait(WAIT_SECONDS)

    with ZooKeeperLock(NAME, client=holder):
        waiters = []
        for index in range(5):
            waiters.append(threads.submit(wait_in_line, index))
            in_queue(seen, index + 2)
        nodes = [f"{FOLDER}/{node}" for node in queued(seen)]
        # each is watched by who stands right behind it, the last by nobody, and the folder by nobody
        until(lambda: server.watched() == dict.fromkeys(nodes[:-1], 1), WAIT_SECONDS)
    for index, waiter in enumerate(waiters):
        in_queue(seen, 5 - index)
        # whoever came or went before: the watches of those behind are the ones they set when they came
        until(lambda index=index: server.watched() == dict.fromkeys(nodes[index + 1 : -1], 1), WAIT_SECONDS)
        go[index].set()
        waiter.result(WAIT_SECONDS)
    # each looked when it came and when it was its turn, however many went before it
    assert [one.lists for one in others] == [2] * 5


# ---- who holds


def test_reentrant_in_its_thread_alone(client: Client, threads: ThreadPoolExecutor) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    with lock:
        first = lock.token
        assert lock.acquire(wait_seconds=0)
        assert ZooKeeperLock(NAME, client=client).acquire(wait_seconds=0)  # it is the name that is held
        assert lock.token == first
        assert not threads.submit(lock.acquire, wait_seconds=0).result(WAIT_SECONDS)
        assert threads.submit(lambda: (lock.held, lock.lost, lock.token)).result(WAIT_SECONDS) == (
            False,
            False,
            None,
        )
        lock.release()
        lock.release()
        assert lock.held
        assert len(queued(client)) == 1
    assert not lock.held
    assert queued(client) == []


def test_who_does_not_hold_cannot_release(client: Client, threads: ThreadPoolExecutor) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    with pytest.raises(NotHeld):
        lock.release()
    with lock:
        with pytest.raises(NotHeld):
            threads.submit(lock.release).result(WAIT_SECONDS)
        assert lock.held
        assert len(queued(client)) == 1


def test_an_owner_crosses_threads(client: Client, threads: ThreadPoolExecutor) -> None:
    lock = ZooKeeperLock(NAME, client=client, owner="job 7")
    assert threads.submit(lock.acquire).result(WAIT_SECONDS)
    assert lock.held
    assert not ZooKeeperLock(NAME, client=client, owner="job 8").acquire(wait_seconds=0)
    assert client.get(f"{FOLDER}/{queued(client)[0]}")[0] == b"named:job 7"
    lock.release()
    assert not lock.held


def test_what_a_thread_left_held_is_free_once_it_is_gone(client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    forgetful = threading.Thread(target=lock.acquire)
    forgetful.start()
    forgetful.join()
    assert len(queued(client)) == 1
    with lock:
        assert lock.held


# ---- giving up


def test_who_waits_in_vain_leaves_no_node(connect: Callable[[], Client]) -> None:
    client, other = connect(), connect()
    with ZooKeeperLock(NAME, client=client):
        standing = queued(client)
        lock = ZooKeeperLock(NAME, client=other, wait_seconds=0.05)
        assert not lock.acquire()
        assert queued(client) == standing
        with pytest.raises(LockTimeout), lock:
            pytest.fail("it is held by another")
        assert queued(client) == standing
        assert not lock.held
        assert not lock.acquire(wait_seconds=0)
        assert queued(client) == standing
    assert lock.acquire(wait_seconds=0)
    lock.release()


def test_many_who_give_up_leave_one_watch(connect: Callable[[], Client], threads: ThreadPoolExecutor) -> None:
    client, other = connect(), connect()

    def watches() -> list[int]:
        return [len(watchers) for watchers in other._data_watchers.values()]

    with ZooKeeperLock(NAME, client=client):
        lock = ZooKeeperLock(NAME, client=other)
        for _ in range(5):
            waiting = threads.submit(lock.acquire)
            in_queue(client, 2)
            until(lambda: watches() == [1], WAIT_SECONDS)
            lock.cancel()
            assert waiting.result(WAIT_SECONDS) is False
        assert watches() == [1]
    assert lock.acquire(wait_seconds=WAIT_SECONDS)
    lock.release()


def test_an_interrupted_waiter_leaves_no_node(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "get_async", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with ZooKeeperLock(NAME, client=client, owner="another"):
        standing = queued(client)
        with pytest.raises(KeyboardInterrupt):
            ZooKeeperLock(NAME, client=client).acquire()
        assert queued(client) == standing


# ---- the end of processes and sessions


def test_the_lock_of_a_killed_process_is_free(server: ZooKeeperServer, client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    with another_process(server) as (process, told):
        theirs = told.recv()
        assert not lock.acquire(wait_seconds=0)
        process.kill()
        assert lock.acquire(wait_seconds=WAIT_SECONDS)
        assert lock.token is not None
        assert lock.token > theirs
        lock.release()


def test_a_killed_waiter_blocks_nobody(
    server: ZooKeeperServer, client: Client, threads: ThreadPoolExecutor
) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    with lock, another_process(server) as (process, told):
        in_queue(client, 2)
        behind = threads.submit(ZooKeeperLock(NAME, client=client, owner="behind").acquire)
        in_queue(client, 3)
        process.kill()
        process.join()
        lock.release()
        assert behind.result(WAIT_SECONDS)
        with pytest.raises(EOFError):
            told.recv()
        ZooKeeperLock(NAME, client=client, owner="behind").release()
        lock.acquire()


def test_a_holder_whose_session_ended_is_told(server: ZooKeeperServer, connect: Callable[[], Client]) -> None:
    client, other = connect(), connect()
    lock, next_one = ZooKeeperLock(NAME, client=client), ZooKeeperLock(NAME, client=other)
    outer, inner = contextlib.ExitStack(), contextlib.ExitStack()
    outer.enter_context(lock)
    inner.enter_context(lock)
    token = lock.token
    assert not lock.lost
    end_session(server, client)
    until(lambda: lock.lost, WAIT_SECONDS)
    assert not lock.held
    assert lock.token == token
    assert next_one.acquire(wait_seconds=WAIT_SECONDS)
    assert next_one.token is not None
    assert token is not None
    assert next_one.token > token
    until(lambda: client.connected, WAIT_SECONDS)  # in another session, which helps nothing
    assert lock.lost
    with pytest.raises(LockLost):
        lock.acquire()
    with pytest.raises(LockLost):
        inner.close()
    assert lock.lost
    with pytest.raises(LockLost):
        outer.close()
    assert not lock.lost
    with pytest.raises(NotHeld):
        lock.release()
    assert next_one.held
    next_one.release()
    assert lock.acquire(wait_seconds=0)
    lock.release()


def test_another_error_is_not_hidden_by_the_loss(server: ZooKeeperServer, client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client)

    def fail() -> None:
        with lock:
            end_session(server, client)
            until(lambda: lock.lost, WAIT_SECONDS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(NotHeld):
        lock.release()


def test_a_deleted_node_is_a_lost_lock(client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    with pytest.raises(LockLost), lock:
        client.delete(f"{FOLDER}/{queued(client)[0]}")
    assert not lock.held


def test_a_waiter_whose_session_ended_stands_in_line_again(
    server: ZooKeeperServer, connect: Callable[[], Client], threads: ThreadPoolExecutor
) -> None:
    client, other = connect(), connect()
    lock = ZooKeeperLock(NAME, client=other, owner="waiter")
    with ZooKeeperLock(NAME, client=client):
        waiter = threads.submit(lock.acquire)
        in_queue(client, 2)
        before = queued(client)[1]
        end_session(server, other)
        until(lambda: len(queued(client)) == 2 and before not in queued(client), WAIT_SECONDS)
    assert waiter.result(WAIT_SECONDS)
    lock.release()
    assert queued(client) == []


# ---- connections and answers that are lost


def test_a_connection_that_comes_back_keeps_the_lock(client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client, owner="whoever asks")
    seen: list[tuple[str, bool, bool]] = []
    client.add_listener(lambda state: seen.append((state, lock.lost, lock.held)))
    with lock:
        drop(client)
        until(lambda: len(seen) == 2, WAIT_SECONDS)
        assert seen == [(KazooState.SUSPENDED, True, False), (KazooState.CONNECTED, False, True)]
    assert queued(client) == []


def test_a_waiter_survives_a_lost_connection(connect: Callable[[], Client], threads: ThreadPoolExecutor) -> None:
    client, other = connect(), connect()
    lock = ZooKeeperLock(NAME, client=other, owner="waiter")
    back = threading.Event()
    with ZooKeeperLock(NAME, client=client):
        waiter = threads.submit(lock.acquire)
        in_queue(client, 2)
        standing = queued(client)
        other.add_listener(lambda state: back.set() if state == KazooState.CONNECTED else None)
        drop(other)
        assert back.wait(WAIT_SECONDS)
        assert queued(client) == standing
    assert waiter.result(WAIT_SECONDS)
    lock.release()


def test_a_node_whose_answer_was_lost_is_found_again(client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    client.ensure_path(FOLDER)
    client.deaf_to = "create"
    with lock:
        (node,) = queued(client)
        assert lock.token == client.exists(f"{FOLDER}/{node}").czxid
        assert client.deaf_to == ""
    assert queued(client) == []


def test_a_node_whose_answer_was_lost_is_not_left(connect: Callable[[], Client]) -> None:
    client, other = connect(), connect()
    with ZooKeeperLock(NAME, client=client):
        standing = queued(client)
        other.deaf_to = "create"
        with pytest.raises(LockUnavailable):
            ZooKeeperLock(NAME, client=other).acquire(wait_seconds=0)
        until(lambda: queued(client) == standing, WAIT_SECONDS)


def test_a_release_whose_answer_was_lost_is_one(client: Client) -> None:
    lock = ZooKeeperLock(NAME, client=client)
    with lock:
        client.deaf_to = "delete"
    assert client.deaf_to == ""
    assert queued(client) == []


def test_a_silent_server_is_waited_for_no_longer_than_that(
    client: Client, server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, held = ZooKeeperLock(NAME, client=client), ZooKeeperLock("held", client=client)
    client.ensure_path(FOLDER)
    held.acquire()
    monkeypatch.setattr(nodes, "ANSWER_SECONDS", 0.2)
    server.freeze()
    try:
        with pytest.raises(LockUnavailable):
            lock.acquire()
        with pytest.raises(LockUnavailable):
            held.release()
    finally:
        server.thaw()
    # what was asked for is done after all, and undone
    until(lambda: not client.get_children(f"{ROOT}/lock-held") and not queued(client), WAIT_SECONDS)
    monkeypatch.undo()
    with lock, held:
        assert len(queued(client)) == 1


def test_a_server_that_is_away_is_not_asked(
    client: Client, server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(client, "state", KazooState.SUSPENDED)
    with pytest.raises(LockUnavailable, match="No connection"):
        ZooKeeperLock(NAME, client=client).acquire()
    monkeypatch.undo()
    assert queued(client) == []


def test_a_client_that_is_not_started_is_an_error_at_once(server: ZooKeeperServer) -> None:
    with pytest.raises(LockUnavailable, match="not started"):
        ZooKeeperLock(NAME, client=KazooClient(server.hosts)).acquire()


def test_a_stopped_client_has_lost_its_locks(connect: Callable[[], Client], threads: ThreadPoolExecutor) -> None:
    client, other = connect(), connect()
    lock = ZooKeeperLock(NAME, client=client)
    lock.acquire()
    waiter = threads.submit(ZooKeeperLock(NAME, client=other).acquire)
    in_queue(client, 2)
    other.stop()
    with pytest.raises(LockUnavailable):
        waiter.result(WAIT_SECONDS)
    client.stop()
    assert lock.lost
    with pytest.raises(LockLost):
        lock.release()


# ---- asyncio


async def asleep_until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_tasks_exclude_each_other(client: Client) -> None:
    """More of them than threads of the executor: those who wait leave room for who releases."""
    lock = AsyncZooKeeperLock(NAME, client=client)
    inside, tokens = 0, []

    async def work() -> None:
        nonlocal inside
        async with lock:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            assert lock.token is not None
            tokens.append(lock.token)
            inside -= 1

    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(work() for _ in range(60)))
    assert len(tokens) == 60
    assert tokens == sorted(set(tokens))
    assert queued(client) == []


async def test_reentrant_in_its_task_alone(client: Client) -> None:
    lock = AsyncZooKeeperLock(NAME, client=client)
    async with lock:
        assert await lock.acquire(wait_seconds=0)
        assert not await asyncio.create_task(lock.acquire(wait_seconds=0))
        assert not ZooKeeperLock(NAME, client=client, owner="a thread").acquire(wait_seconds=0)
        with pytest.raises(NotHeld):
            await asyncio.create_task(lock.release())
        await lock.release()
        assert (lock.held, lock.lost) == (True, False)
        assert len(queued(client)) == 1
    assert (lock.held, lock.lost, lock.token) == (False, False, None)
    assert queued(client) == []


async def test_a_cancelled_waiter_leaves_nothing(connect: Callable[[], Client]) -> None:
    client, other = connect(), connect()
    lock = AsyncZooKeeperLock(NAME, client=client)
    async with lock:
        standing = queued(client)
        waiter = asyncio.create_task(AsyncZooKeeperLock(NAME, client=other).acquire())
        await asleep_until(lambda: len(queued(client)) == 2)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        # a node whose reply had not come is deleted in the background
        await asleep_until(lambda: queued(client) == standing)


async def test_cancelled_at_any_step_leaves_nothing(connect: Callable[[], Client]) -> None:
    """One step of the loop later each time, from before the node is asked for to after it is the first."""
    client, other = connect(), connect()
    lock = AsyncZooKeeperLock(NAME, client=client)
    finished = steps = 0
    while finished < 3:
        task = asyncio.create_task(lock.acquire())
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert await task
            finished += 1
        steps += 1
    # the tasks that finished are gone without a release: whoever comes next finds that out
    async with AsyncZooKeeperLock(NAME, client=client):
        await asleep_until(lambda: len(queued(other)) == 1)


async def test_an_async_wait_has_an_end(client: Client) -> None:
    async with AsyncZooKeeperLock(NAME, client=client):
        standing = queued(client)
        late = AsyncZooKeeperLock(NAME, client=client, owner="late", wait_seconds=0.05)
        assert not await late.acquire()
        with pytest.raises(LockTimeout):
            await late.enter()
        assert queued(client) == standing


async def test_a_task_whose_session_ended_is_told(server: ZooKeeperServer, client: Client) -> None:
    lock = AsyncZooKeeperLock(NAME, client=client)

    async def work() -> None:
        async with lock:
            await asyncio.to_thread(end_session, server, client)
            await asleep_until(lambda: lock.lost)
            assert not lock.held

    with pytest.raises(LockLost):
        await work()
    with pytest.raises(NotHeld):
        await lock.release()


def test_a_loop_that_ended_while_waiting_leaves_nothing(client: Client) -> None:
    loop = asyncio.new_event_loop()
    with ZooKeeperLock(NAME, client=client):
        standing = queued(client)
        waiting = AsyncZooKeeperLock(NAME, client=client).acquire()
        task = loop.create_task(waiting)
        loop.run_until_complete(asleep_until(lambda: len(queued(client)) == 2))
        waiting.close()  # as the interpreter does with what nobody will go on with
        until(lambda: queued(client) == standing, WAIT_SECONDS)
        task.cancel()  # it may wait for the one before it, which does not end here
        with pytest.raises(RuntimeError, match="already awaited"):
            loop.run_until_complete(task)
        loop.close()


# ---- without a server


def test_the_queue_goes_on_where_the_servers_numbers_wrap() -> None:
    a, b, c, d = (
        f"{letter * 32}_{number}"
        for letter, number in zip("abcd", ("2147483646", "2147483647", "-2147483648", "-2147483647"), strict=True)
    )
    everyone = in_order([c, a, d, b, "a note of somebody", "0123_5"])
    assert [predecessor(node, everyone) for node in (a, b, c, d)] == [None, a, b, c]
    assert predecessor(d, in_order([d, a])) == a


def test_a_machine_without_zookeeper_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    guardian: Any = None
    monkeypatch.setattr(zookeeper_server, "JARS", (tmp_path / "no.jar",))
    with pytest.raises(RuntimeError, match="apt-get install zookeeper"):
        ZooKeeperServer(guardian, tmp_path).start()
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(RuntimeError, match=r"no java.*apt-get install zookeeper"):
        ZooKeeperServer(guardian, tmp_path).start()


# ---- readers, permits, and holders that do not come in twice


@pytest.fixture(params=["threads", "asyncio"])
def made(
    request: pytest.FixtureRequest, connect: Callable[[], Client]
) -> Iterator[tuple[Any, Any, Callable[[], Any]]]:
    """Makes locks and semaphores of one face, each on the client that it names, and actors."""
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(a_loop()) if request.param == "asyncio" else None
        kinds = (AsyncZooKeeperLock, AsyncZooKeeperSemaphore) if loop else (ZooKeeperLock, ZooKeeperSemaphore)

        def actor() -> Any:
            one = Actor() if loop is None else TaskActor(loop)
            stack.callback(one.end)
            return one

        yield *kinds, actor


def test_readers_share_and_a_writer_excludes_them(made: Any, connect: Callable[[], Client]) -> None:
    lock, _, actor = made
    client = connect()
    read, write = lock(NAME, client=client, shared=True), lock(NAME, client=connect())
    first, second, writer, late = (actor() for _ in range(4))
    assert first.do(read.acquire)
    assert second.do(lambda: lock(NAME, client=connect(), shared=True).acquire(wait_seconds=0))
    assert len(first.do(read.state).owners) == 2
    writing = writer.begin(write.acquire)
    in_queue(client, 3)
    assert late.do(lambda: read.acquire(wait_seconds=0)) is False  # a reader passes no writer
    with pytest.raises(UpgradeRefused):
        first.do(lambda: lock(NAME, client=client).acquire(wait_seconds=0))
    first.do(read.release)
    assert not writing.done()
    assert second.do(lambda: lock(NAME, client=connect()).held) is False
    assert late.do(write.force_release) is True  # the other reader's
    assert writing.result(WAIT_SECONDS) is True
    reading = lock(NAME, client=write._client, shared=True)
    assert writer.do(reading.acquire)  # a writer may
    writer.do(write.release)
    assert late.do(lambda: read.acquire(wait_seconds=0)) is False
    writer.do(reading.release)
    assert late.do(lambda: read.acquire(wait_seconds=0)) is True
    late.do(read.release)


def test_one_of_two_readers_is_put_out_by_its_token(made: Any, connect: Callable[[], Client]) -> None:
    lock, _, actor = made
    one, two = ((actor(), lock(NAME, client=connect(), shared=True)) for _ in range(2))
    for reader, read in (one, two):
        assert reader.do(read.acquire)
    token = one[0].do(lambda: one[1].token)
    for released in (True, False):
        assert two[0].do(lambda: two[1].force_release(token=token)) is released
    with pytest.raises(LockLost):
        one[0].do(one[1].release)
    two[0].do(two[1].release)


def test_a_holder_that_may_not_come_in_twice(made: Any, client: Client) -> None:
    lock, _, actor = made
    once = lock(NAME, client=client, reentrant=False, owner="both")
    first, second = actor(), actor()
    assert first.do(once.acquire)
    assert first.do(lambda: once.acquire(wait_seconds=0)) is False
    waiting = second.begin(once.acquire)
    in_queue(client, 2)
    first.do(once.release)
    assert waiting.result(WAIT_SECONDS) is True
    second.do(once.release)
    assert queued(client) == []


def test_permits_are_shared_in_order_of_arrival(made: Any, connect: Callable[[], Client]) -> None:
    _, semaphore, actor = made
    permits = [semaphore("till", permits=2, client=connect()) for _ in range(4)]
    first, second, third, fourth = actors = [actor() for _ in permits]
    for one, each in zip(actors[:2], permits[:2], strict=True):
        assert one.do(each.acquire)
    assert third.do(lambda: permits[2].acquire(wait_seconds=0)) is False
    waiting = third.begin(permits[2].acquire)
    until(lambda: fourth.do(permits[3].waiters) == 1, WAIT_SECONDS)
    last = fourth.begin(permits[3].acquire)
    until(lambda: first.do(permits[0].waiters) == 2, WAIT_SECONDS)
    assert [first.do(getattr(permits[0], ask)) for ask in ("total", "acquired", "available")] == [2, 2, 0]
    assert len(first.do(permits[0].contenders)) == 4
    second.do(permits[1].release)
    assert waiting.result(WAIT_SECONDS) is True
    assert not last.done()
    actor().do(permits[3].cancel)
    assert last.result(WAIT_SECONDS) is False
    assert first.do(permits[0].acquired) == 2
    third.do(permits[2].release)
    assert first.do(permits[0].acquire)  # another one of the same holder
    assert first.do(permits[0].available) == 0
    for _ in range(2):
        first.do(permits[0].release)
    with pytest.raises(NotHeld):
        first.do(permits[0].release)
    assert first.do(permits[0].available) == 2


@pytest.mark.parametrize("how", ["force", "session"])
def test_a_listener_hears_of_a_loss_on_kazoos_thread(
    made: Any, connect: Callable[[], Client], server: ZooKeeperServer, how: str
) -> None:
    lock, _, actor = made
    client = connect()
    ends: list[tuple[str, str, int]] = []
    calls: Any = {
        f"on_{end}": lambda name, token, end=end: ends.append((end, name, token)) for end in ("lost", "released")
    }
    heard, other = lock(NAME, client=client, **calls), lock(NAME, client=connect())
    holder, waiter = actor(), actor()
    threads = threading.active_count()
    assert holder.do(heard.acquire)
    holder.do(heard.release)
    assert holder.do(heard.acquire)
    assert threading.active_count() == threads
    token = holder.do(lambda: heard.token)
    assert [end for end, *_ in ends] == ["released"]
    waiting = waiter.begin(other.acquire)
    in_queue(other._client, 2)
    if how == "force":
        assert actor().do(other.force_release) is True
    else:
        end_session(server, client)
    assert waiting.result(WAIT_SECONDS) is True
    assert waiter.do(lambda: other.token) > token
    until(lambda: len(ends) == 2, WAIT_SECONDS)
    assert ends[1:] == [("lost", NAME, token)]
    assert holder.do(lambda: heard.lost) is True
    with pytest.raises(LockLost):
        holder.do(heard.release)
    assert len(ends) == 2
    with pytest.raises(TypeError, match="no lease"):
        lock(NAME, client=client, on_expired=print)
    waiter.do(other.release)


def test_a_session_that_ends_before_its_turn_is_no_loss_and_the_next_one_is_heard(
    connect: Callable[[], Client], server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, ends = connect(), []
    lock = ZooKeeperLock(NAME, client=client, on_lost=lambda _, token: ends.append(token))
    with lock:
        pass  # makes the folder
    exists = client.exists_async

    def after_its_end(*arguments: Any) -> Any:
        monkeypatch.undo()
        session = client.client_id
        end_session(server, client)
        until(lambda: client.connected and client.client_id not in {None, session}, WAIT_SECONDS)
        return exists(*arguments)

    monkeypatch.setattr(client, "exists_async", after_its_end)
    assert lock.acquire(wait_seconds=WAIT_SECONDS)
    assert (ends, lock.held) == ([], True)
    token = lock.token
    assert ZooKeeperLock(NAME, client=connect()).force_release() is True
    until(lambda: ends == [token], WAIT_SECONDS)
    with pytest.raises(LockLost):
        lock.release()


@pytest.mark.parametrize(
    ("kind", "arguments", "commands"),
    [
        (ZooKeeperLock, {}, 3),
        (ZooKeeperLock, {"shared": True}, 3),
        (ZooKeeperLock, {"on_released": print}, 3),
        (ZooKeeperLock, {"on_lost": print}, 4),
        (ZooKeeperSemaphore, {"permits": 2}, 6),
    ],
)
def test_what_an_uncontended_turn_costs(
    client: Client, monkeypatch: pytest.MonkeyPatch, kind: Any, arguments: Any, commands: int
) -> None:
    lock = kind(NAME, client=client, **arguments)
    with lock:
        pass  # makes the folders
    sent: list[str] = []
    send = client._call

    def counting(request: Any, answer: Any) -> Any:
        sent.append(type(request).__name__)
        return send(request, answer)

    monkeypatch.setattr(client, "_call", counting)
    with lock:
        pass
    assert len([name for name in sent if name != "Ping"]) == commands, sent
