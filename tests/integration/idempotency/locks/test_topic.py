"""Topics: every listener hears every message, or that there was a gap."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio

from idempotency.locks import aio
from idempotency.locks import topic as topics
from idempotency.locks.engine.hub import tagged
from idempotency.redis.subscriber import Subscriber
from idempotency.redis.task_subscriber import TaskSubscriber
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench
from tests.integration.idempotency.locks.test_interrupts import Stop


class Listener:
    """An actor that listens until it is stopped; `heard` is what came."""

    def __init__(self, bench: Bench, topic: Any) -> None:
        self.heard: list[str | None] = []
        self._stop = threading.Event()
        self._topic = topic
        self.done = bench.actor().begin(self._threads if bench.loop is None else self._tasks)
        until(lambda: self.heard[:1] == [None] or self.done.done())

    def _threads(self) -> None:
        with self._topic.listen() as messages:
            while not self._stop.is_set():
                with contextlib.suppress(TimeoutError):
                    self.heard.append(messages.take(wait_seconds=0.05))

    async def _tasks(self) -> None:
        async with self._topic.listen() as messages:
            while not self._stop.is_set():
                with contextlib.suppress(TimeoutError):
                    self.heard.append(await messages.take(wait_seconds=0.05))

    def end(self) -> None:
        self._stop.set()
        self.done.result(30)


def test_everyone_hears_a_message(bench: Bench) -> None:
    topic = bench.make("Topic")
    teller = bench.actor()
    one, two = Listener(bench, topic), Listener(bench, topic)
    other = Listener(bench, bench.make("Topic", "another"))
    for word in ("paid", "退款"):
        teller.do(lambda word=word: topic.tell(word))
    until(lambda: all(each.heard[-2:] == ["paid", "退款"] for each in (one, two)))
    for word in ("a hint", "another"):
        teller.do(lambda word=word: topic.hint(word))
    until(lambda: all(each.heard[-2:] == ["a hint", "another"] for each in (one, two)))
    one.end()
    teller.do(lambda: topic.tell("late"))
    until(lambda: two.heard[-1] == "late")
    assert "late" not in one.heard
    assert set(other.heard) == {None}
    two.end()
    with bench.servers.data_nodes() as servers:
        until(lambda: not any(server.pubsub_channels(tagged("topic", "thing")) for server in servers))
        assert any(server.pubsub_channels(tagged("topic", "another")) for server in servers)
    again = Listener(bench, topic)
    teller.do(lambda: topic.tell("again"))
    until(lambda: again.heard[-1] == "again")
    again.end()
    other.end()


def test_a_listener_hears_of_a_gap_and_a_message_that_is_no_text_makes_none(one: Bench) -> None:
    topic = one.make("Topic")
    listener = Listener(one, topic)
    one.plain.publish(topic.channel, b"\xff")
    one.actor().do(lambda: topic.tell("and on"))
    until(lambda: listener.heard == [None, "\N{REPLACEMENT CHARACTER}", "and on"])
    with one.servers.data_nodes() as (server,):
        for _ in range(2):
            heard = len(listener.heard)
            server.client_kill_filter(_type="pubsub")
            until(lambda heard=heard: len(listener.heard) > heard)
            assert listener.heard[-1] is None
    one.actor().do(lambda: topic.tell("and on again"))
    until(lambda: listener.heard[-1] == "and on again")
    listener.end()


async def test_a_client_of_another_encoding_hears_what_is_told(servers: Callable[[str], Any]) -> None:
    url = servers("Redis").url
    async with redis.asyncio.Redis.from_url(url, encoding="latin-1", decode_responses=True) as client:
        async with aio.Topic("clé", client=client).listen() as messages:
            assert await messages.take(wait_seconds=30) is None
            await aio.Topic("clé", client=client).tell("payé")
            assert await messages.take(wait_seconds=30) == "payé"
        await aio.close()


async def test_who_joins_while_it_connects_is_heard(servers: Callable[[str], Any]) -> None:
    connecting = asyncio.Event()

    async def hear(name: str) -> str | None:
        async with aio.Topic(name, client=client).listen() as messages:
            assert await messages.take(wait_seconds=30) is None
            await aio.Topic(name, client=client).tell(f"paid {name}")
            while (heard := await messages.take(wait_seconds=30)) is None:
                continue
            return heard

    async with redis.asyncio.Redis.from_url(servers("Redis").url) as client:
        near = client.connection_pool.connection_class

        class Far(near):  # type: ignore[misc, valid-type]
            async def _connect(self) -> None:
                connecting.set()
                await asyncio.sleep(0.03)
                await super()._connect()

        client.connection_pool.connection_class = Far
        first = asyncio.create_task(hear("a"))
        await connecting.wait()
        assert await asyncio.gather(first, hear("b")) == ["paid a", "paid b"]
        await aio.close()


def test_who_is_interrupted_while_he_joins_has_left(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, actor = one.make("Topic"), one.actor()
    other = Listener(one, one.make("Topic", "another"))  # there is a connection
    tell, tell_async = Subscriber._change, TaskSubscriber._change

    def interrupted(subscriber: Subscriber, what: str, channel: str) -> None:
        tell(subscriber, what, channel)
        if what == "subscribe":
            raise Stop

    async def cancelled(subscriber: TaskSubscriber, what: str, channel: str) -> None:
        if what == "subscribe":
            actor.cancel()
            await asyncio.sleep(0.01)  # the cancellation comes before this is over
        await tell_async(subscriber, what, channel)

    with monkeypatch.context() as patched:
        patched.setattr(Subscriber, "_change", interrupted)
        patched.setattr(TaskSubscriber, "_change", cancelled)
        with pytest.raises(Stop if one.loop is None else asyncio.CancelledError):
            actor.do(topic.listen().__enter__ if one.loop is None else topic.listen().__aenter__)
    assert topic.channel not in actor.do(topic.hub).mailbox.channels
    with one.servers.data_nodes() as (server,):
        until(lambda: not server.pubsub_channels(topic.channel))
    again = Listener(one, topic)
    actor.do(lambda: topic.tell("heard"))
    until(lambda: again.heard[-1] == "heard")
    again.end()
    other.end()


def test_a_slow_listener_hears_that_it_missed_some(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "KEPT_MAX", 3)
    actor = one.actor()
    messages = topics.Messages() if one.loop is None else actor.do(topics.AsyncMessages)
    for word in "abcdefg":
        messages.put(word)
    assert [actor.do(lambda: messages.take(wait_seconds=1)) for _ in range(4)] == ["a", "b", "c", None]
    messages.put("h")
    assert actor.do(lambda: messages.take(wait_seconds=1)) == "h"
