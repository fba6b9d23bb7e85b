"""ZooKeeper's lock: its queue, sessions that end, answers that do not come."""

import asyncio
import contextlib
import math
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState

from idempotency.locks.engine import queues
from idempotency.locks.engine.nodes import in_order, predecessor
from idempotency.locks.errors import LockLost, LockUnavailable, NotHeld
from idempotency.locks.zookeeper import (
    ROOT,
    AsyncZooKeeperLock,
    AsyncZooKeeperSemaphore,
    ZooKeeperLock,
    ZooKeeperSemaphore,
)
from tests.integration.idempotency.locks.actors import Faced
from tests.integration.idempotency.locks.mutexes import end_session, sessions
from tests.running import until
from tests.threads import in_background
from tests.zookeeper_server import ZooKeeperServer

NAME = "order/7 ü"
FOLDER = f"{ROOT}/lock-order%2F7%20%C3%BC"
WAIT_SECONDS = 60.0  # for what must come; never for what must not


class Client(KazooClient):
    """Client that counts its lists of a queue, and is `deaf_to` the next answer of a kind.

    That answer is lost with the connection, as it is outside of tests.
    """

    deaf_to = ""
    lists = 0

    def get_children_async(self, *arguments: Any, **named: Any) -> Any:
        self.lists += 1
        return self._unheard("list", super().get_children_async(*arguments, **named))

    def create_async(self, *arguments: Any, **named: Any) -> Any:
        return self._unheard("create" if named.get("ephemeral") else "", super().create_async(*arguments, **named))

    def delete_async(self, *arguments: Any, **named: Any) -> Any:
        return self._unheard("delete", super().delete_async(*arguments, **named))

    def _unheard(self, kind: str, answer: Any) -> Any:
        if not kind or self.deaf_to != kind:
            return answer
        self.deaf_to = ""
        said = self.handler.async_result()

        def lose(_: Any) -> None:
            drop(self)
            said.set_exception(ConnectionLoss())

        answer.rawlink(lose)
        return said


def drop(client: KazooClient) -> None:
    """Cut the connection; kazoo makes another one of the same session."""
    client._connection._socket.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def connect(zookeeper: ZooKeeperServer) -> Iterator[Callable[[], Client]]:
    with sessions(zookeeper, Client) as made:
        yield made


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


def queued(client: KazooClient) -> list[str]:
    """The queue, in its order (its numbers do not wrap here)."""
    found = client.get_children(FOLDER) if client.exists(FOLDER) else []
    return sorted(found, key=lambda node: node.rpartition("_")[2])


def in_queue(client: KazooClient, count: int) -> None:
    """Until so many stand there."""
    until(lambda: len(queued(client)) == count, WAIT_SECONDS)


def test_tokens_grow_although_the_numbers_start_again(client: Client) -> None:
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


def test_names_and_chroots_are_apart(connect: Callable[[], Client], zookeeper: ZooKeeperServer) -> None:
    client = connect()
    client.ensure_path("/elsewhere")
    apart = KazooClient(f"{zookeeper.hosts}/elsewhere")
    with contextlib.ExitStack() as stack:
        stack.callback(apart.close)
        apart.start()
        stack.callback(apart.stop)
        for name in (NAME, ".", ""):
            stack.enter_context(ZooKeeperLock(name, client=client))
        assert not ZooKeeperLock(".", client=connect()).acquire(wait_seconds=0)
        stack.enter_context(ZooKeeperLock(NAME, client=apart, wait_seconds=0))
        assert len(queued(client)) == 1


def test_only_the_next_one_is_woken(connect: Callable[[], Client], zookeeper: ZooKeeperServer) -> None:
    holder, *others = (connect() for _ in range(6))
    seen = connect()
    go = [threading.Event() for _ in others]

    def wait_in_line(index: int) -> None:
        with ZooKeeperLock(NAME, client=others[index]):
            go[index].wait(WAIT_SECONDS)

    with ZooKeeperLock(NAME, client=holder):
        waiters = []
        for index in range(5):
            waiters.append(in_background(partial(wait_in_line, index)))
            in_queue(seen, index + 2)
        nodes = [f"{FOLDER}/{node}" for node in queued(seen)]
        # each is watched by who stands right behind it, the last by nobody, and the folder by nobody
        until(lambda: zookeeper.watched() == dict.fromkeys(nodes[:-1], 1), WAIT_SECONDS)
    for index, waiter in enumerate(waiters):
        in_queue(seen, 5 - index)
        # whatever came or went before: the watches of those behind are the ones they set when they came
        until(lambda index=index: zookeeper.watched() == dict.fromkeys(nodes[index + 1 : -1], 1), WAIT_SECONDS)
        go[index].set()
        waiter.result(WAIT_SECONDS)
    # each looked when it came and when it was its turn, however many went before it
    assert [one.lists for one in others] == [2] * 5


def test_many_who_give_up_leave_one_watch(connect: Callable[[], Client]) -> None:
    client, other = connect(), connect()
    lock = ZooKeeperLock(NAME, client=other)
    with ZooKeeperLock(NAME, client=client):
        for _ in range(5):
            waiting = in_background(lock.acquire)
            in_queue(client, 2)
            until(lambda: [*map(len, other._data_watchers.values())] == [1], WAIT_SECONDS)
            lock.cancel()
            assert waiting.result(WAIT_SECONDS) is False


def test_an_interrupted_waiter_leaves_no_node(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "get_async", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with ZooKeeperLock(NAME, client=client, owner="another"):
        standing = queued(client)
        with pytest.raises(KeyboardInterrupt):
            ZooKeeperLock(NAME, client=client).acquire()
        assert queued(client) == standing


def test_a_waiter_whose_session_ended_stands_in_line_again(
    zookeeper: ZooKeeperServer, connect: Callable[[], Client]
) -> None:
    client, other = connect(), connect()
    lock = ZooKeeperLock(NAME, client=other, owner="waiter")
    with ZooKeeperLock(NAME, client=client):
        waiter = in_background(lock.acquire)
        in_queue(client, 2)
        before = queued(client)[1]
        end_session(zookeeper, other)
        until(lambda: len(queued(client)) == 2 and before not in queued(client), WAIT_SECONDS)
    assert waiter.result(WAIT_SECONDS)
    lock.release()
    assert queued(client) == []


def test_a_session_that_ends_before_its_turn_is_no_loss_and_the_next_one_is_heard(
    connect: Callable[[], Client], zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, ends = connect(), []
    lock = ZooKeeperLock(NAME, client=client, on_lost=lambda _, token: ends.append(token))
    with lock:
        pass  # makes the folder
    exists = client.exists_async

    def after_its_end(*arguments: Any) -> Any:
        monkeypatch.undo()
        session = client.client_id
        end_session(zookeeper, client)
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


def test_a_connection_that_comes_back_keeps_the_lock_and_the_place_in_the_queue(
    connect: Callable[[], Client],
) -> None:
    client, other = connect(), connect()
    lock, behind = (ZooKeeperLock(NAME, client=each, owner="any caller") for each in (client, other))
    seen: list[tuple[str, bool, bool]] = []
    client.add_listener(lambda state: seen.append((state, lock.lost, lock.held)))
    back = threading.Event()
    with lock:
        waiter = in_background(behind.acquire)
        in_queue(client, 2)
        standing = queued(client)
        other.add_listener(lambda state: back.set() if state == KazooState.CONNECTED else None)
        drop(other)
        assert back.wait(WAIT_SECONDS)
        drop(client)
        until(lambda: len(seen) == 2, WAIT_SECONDS)
        assert seen == [(KazooState.SUSPENDED, True, False), (KazooState.CONNECTED, False, True)]
        assert queued(client) == standing
    assert waiter.result(WAIT_SECONDS)
    behind.release()


def test_answers_that_are_lost_cost_nothing(connect: Callable[[], Client]) -> None:
    client, other = connect(), connect()
    lock = ZooKeeperLock(NAME, client=client)
    client.ensure_path(FOLDER)

    def is_locked() -> bool:
        with contextlib.suppress(LockUnavailable):  # kazoo has no other connection yet
            return lock.locked()
        return False

    client.deaf_to = "create"
    with lock:
        (node,) = queued(client)  # found again
        assert lock.token == client.exists(f"{FOLDER}/{node}").czxid
        other.deaf_to = "create"
        with pytest.raises(LockUnavailable):
            ZooKeeperLock(NAME, client=other).acquire(wait_seconds=0)
        until(lambda: queued(client) == [node], WAIT_SECONDS)  # no other one is left
        for question in (lock.state, lock.contenders, lock.force_release):  # none is an answer
            client.deaf_to = "list"
            with pytest.raises(LockUnavailable):
                question()
            until(is_locked, WAIT_SECONDS)
            assert not client.deaf_to
        client.deaf_to = "delete"
    assert (client.deaf_to, queued(client)) == ("", [])


def test_a_silent_server_is_waited_for_no_longer_than_that(
    client: Client, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, held = ZooKeeperLock(NAME, client=client), ZooKeeperLock("held", client=client)
    client.ensure_path(FOLDER)
    held.acquire()
    monkeypatch.setattr(queues, "ANSWER_SECONDS", 0.2)
    zookeeper.freeze()
    try:
        with pytest.raises(LockUnavailable):
            lock.acquire()
        with pytest.raises(LockUnavailable):
            held.release()
    finally:
        zookeeper.thaw()
    # what was asked for is done after all, and undone
    until(lambda: not client.get_children(f"{ROOT}/lock-held") and not queued(client), WAIT_SECONDS)
    monkeypatch.undo()
    with lock, held:
        assert len(queued(client)) == 1


def test_a_client_that_is_not_connected_takes_no_lock_and_loses_what_it_has(
    connect: Callable[[], Client], zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = connect(), connect()
    with pytest.raises(LockUnavailable, match="not started"):
        ZooKeeperLock(NAME, client=KazooClient(zookeeper.hosts)).acquire()
    with monkeypatch.context() as away:
        away.setattr(queues, "ANSWER_SECONDS", 0.05)
        away.setattr(client, "state", KazooState.SUSPENDED)
        with pytest.raises(LockUnavailable, match="No connection"):
            ZooKeeperLock(NAME, client=client).acquire()
    assert queued(client) == []
    lock = ZooKeeperLock(NAME, client=client)
    lock.acquire()
    waiter = in_background(ZooKeeperLock(NAME, client=other).acquire)
    in_queue(client, 2)
    other.stop()
    with pytest.raises(LockUnavailable):
        waiter.result(WAIT_SECONDS)
    client.stop()
    assert lock.lost
    with pytest.raises(LockLost):
        lock.release()


def test_a_loop_that_ended_while_waiting_leaves_nothing(client: Client) -> None:
    loop = asyncio.new_event_loop()
    with ZooKeeperLock(NAME, client=client):
        standing = queued(client)
        waiting = AsyncZooKeeperLock(NAME, client=client).acquire()
        task = loop.create_task(waiting)
        loop.run_until_complete(asyncio.to_thread(in_queue, client, 2))
        waiting.close()  # as the interpreter does with what nobody will go on with
        until(lambda: queued(client) == standing, WAIT_SECONDS)
        task.cancel()  # it may wait for the one before it, which does not end here
        with pytest.raises(RuntimeError, match="already awaited"):
            loop.run_until_complete(task)
        loop.close()


def test_the_queue_goes_on_where_the_servers_numbers_wrap() -> None:
    a, b, c, d = (
        f"{letter * 32}_{number}"
        for letter, number in zip("abcd", ("2147483646", "2147483647", "-2147483648", "-2147483647"), strict=True)
    )
    everyone = in_order([c, a, d, b, "a note of somebody", "0123_5"])
    assert [predecessor(node, everyone) for node in (a, b, c, d)] == [None, a, b, c]
    assert predecessor(d, in_order([d, a])) == a


def test_one_of_two_readers_is_put_out_by_its_token(connect: Callable[[], Client]) -> None:
    first, second = (ZooKeeperLock(NAME, client=connect(), shared=True, owner=owner) for owner in ("1", "2"))
    for read in (first, second):
        assert read.acquire()
    assert second.contenders() == ["named:1", "named:2"]
    assert [second.force_release(token=first.token) for _ in range(2)] == [True, False]
    assert second.contenders() == ["named:2"]
    with pytest.raises(LockLost):
        first.release()
    second.release()


def test_a_free_permit_is_had_without_a_turn(connect: Callable[[], Client]) -> None:
    one, other = (ZooKeeperSemaphore("till", permits=2, client=connect()) for _ in range(2))
    assert one.acquire()
    connect().create(f"{ROOT}/turn-till/{'0' * 32}_", ephemeral=True, sequence=True)  # of a caller that looks
    assert [other.acquire(wait_seconds=0), one.acquire(wait_seconds=0)] == [True, False]
    assert len(one.contenders()) == 3
    for each in (one, other):
        each.release()


def test_permits_are_shared_in_order_of_arrival(connect: Callable[[], Client], faced: Faced) -> None:
    kind = AsyncZooKeeperSemaphore if faced.loop else ZooKeeperSemaphore
    permits = [kind("till", permits=2, client=connect()) for _ in range(4)]
    first, second, third, fourth, other = faced.actors(5)
    for actor, each in ((first, permits[0]), (second, permits[1])):
        assert actor.do(each.acquire)
    assert third.do(lambda: permits[2].acquire(wait_seconds=0)) is False
    waiting = third.begin(permits[2].acquire)
    until(lambda: fourth.do(permits[3].waiters) == 1, WAIT_SECONDS)
    last = fourth.begin(permits[3].acquire)
    until(lambda: other.do(permits[0].waiters) == 2, WAIT_SECONDS)
    assert [other.do(getattr(permits[0], ask)) for ask in ("total", "acquired", "available")] == [2, 2, 0]
    assert len(other.do(permits[0].contenders)) == 4
    assert [other.do(permits[3].locked), other.do(permits[3].remaining_seconds)] == [True, math.inf]
    assert other.do(permits[3].owner).token == first.do(lambda: permits[0].token)
    assert [each.do(permits[3].hold_count) for each in (first, second, other)] == [1, 1, 0]
    second.do(permits[1].release)
    assert waiting.result(WAIT_SECONDS) is True
    assert not last.done()
    other.do(permits[3].cancel)
    assert last.result(WAIT_SECONDS) is False
    assert other.do(permits[0].acquired) == 2
    third.do(permits[2].release)
    assert first.do(permits[0].acquire)  # another one of the same holder
    assert first.do(permits[0].available) == 0
    for _ in range(2):
        first.do(permits[0].release)
    with pytest.raises(NotHeld):
        first.do(permits[0].release)
    assert first.do(permits[0].available) == 2


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


def test_what_would_end_the_session_is_refused(client: Client) -> None:
    for name, given, wrong in (
        ("x" * queues.NAME_MAX + "x", client, "name must be at most"),
        ("thing", "localhost:2181", "client must be a KazooClient"),
    ):
        with pytest.raises(ValueError, match=wrong):
            ZooKeeperLock(name, client=given)
    with ZooKeeperLock("ü" * (queues.NAME_MAX // 6), client=client) as lock:
        with pytest.raises(ValueError, match="token must be a whole number"):
            lock.force_release(token=-1)
        assert lock.locked()
