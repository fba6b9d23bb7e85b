"""`CachedMap`: what Redis and the copies of each process promise, on every kind of server."""

import asyncio
import contextlib
import gc
import math
import multiprocessing
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import redis

from idempotency.cachedmap import CachedMap, Change, Entry
from idempotency.locks import Lock
from idempotency.redis import fastpath
from idempotency.redis.fastpath import Script
from tests.conftest import hanging
from tests.integration.idempotency.locks.conftest import KINDS, servers
from tests.running import until

__all__ = ["servers"]
LONG = 600.0
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def maps() -> Iterator[Callable[..., CachedMap[Any]]]:
    """Makes maps; two of one name are as those of two processes."""
    made: list[CachedMap[Any]] = []

    def make(name: str = "names", **settings: Any) -> CachedMap[Any]:
        made.append(CachedMap(name, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, servers: Callable[[str], Any]) -> Any:
    """Every kind of server."""
    one = servers(request.param)
    one.flush()
    return one.client


@pytest.fixture
def single(servers: Callable[[str], Any]) -> Any:
    """A single Redis."""
    one = servers("Redis")
    one.flush()
    return one.client


def in_threads(*jobs: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [each.result(30) for each in [pool.submit(job) for job in jobs]]


class Source:
    """What a map reads and writes through, with the number of both."""

    def __init__(self, **values: Any) -> None:
        self.values, self.reads, self.writes = values, 0, 0

    def read(self, key: str) -> Any:
        self.reads += 1
        return self.values.get(key)

    def write(self, key: str, value: Any) -> None:
        self.writes += 1
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value


def test_read_and_write_through_once_for_all_processes(client: Any, maps: Any) -> None:
    source = Source(a=1)
    one, two = (maps(client=client, read=source.read, write=source.write) for _ in range(2))
    assert [one.get("a"), two.get("a"), one.get("b", "none"), source.reads] == [1, 1, "none", 2]
    assert one.alone is False
    one.set("a", {"n": 2})
    assert (one.get("a"), source.values, source.writes, source.reads) == ({"n": 2}, {"a": {"n": 2}}, 1, 2)
    assert one.put_if_absent("b", 3) is True
    one.delete("a")
    assert (source.values, source.writes, one.get("a")) == ({"b": 3}, 3, None)
    source.values["c"] = 4
    assert maps(client=client).get_many(["a", "b", "c", "b"]) == {"b": 3}
    assert one.get_many(iter(["b", "c", "d"])) == {"b": 3, "c": 4}
    assert one.get_many([]) == {}


def failing(*_: Any) -> None:
    raise ZeroDivisionError


def test_what_cannot_be_written_changes_nothing(single: Any, maps: Any) -> None:
    source = Source(a=1)
    one, two = maps(client=single, read=source.read, write=failing), maps(client=single)
    two.set("b", 1)
    changes = (
        lambda: one.set("b", 2),
        lambda: one.delete("b"),
        lambda: one.put_if_absent("c", 1),
        lambda: one.replace("a", 2),  # its value is read again
    )
    for change in changes:
        with pytest.raises(ZeroDivisionError):
            change()
        assert (one.get("a"), one.get("b"), two.get("b")) == (1, 1, 1)
    assert (two.put_if_absent("c", 2), source.reads > 1) == (True, True)
    part = maps(client=single, write=lambda key, value: source.write(key, 1 / value))
    with pytest.raises(ZeroDivisionError):
        part.set_many({"x": 1, "y": 0, "z": 1})
    assert (source.values, two.get_many("xyz")) == ({"a": 1, "x": 1.0}, {"x": 1})


def test_a_map_that_could_lose_its_values_is_refused(single: Any, maps: Any) -> None:
    with pytest.raises(TypeError, match="give it read="):
        CachedMap("names", stored=False)
    one = maps(client=single, read=Source().read, stored=False)
    for change in (lambda: one.put_if_absent("a", 1), lambda: one.replace("a", 1)):
        with pytest.raises(TypeError, match="stores nothing"):
            change()


@pytest.mark.parametrize("stored", [True, False])
def test_a_change_invalidates_the_copies_of_all_processes(client: Any, maps: Any, stored: bool) -> None:
    source = Source(a=1)
    one, two = (maps(client=client, read=source.read, write=source.write, stored=stored) for _ in range(2))
    assert [one.get("a"), two.get("a")] == [1, 1]
    two.set("a", 2)
    until(lambda: one.get("a") == 2)
    two.delete("a")
    until(lambda: one.get("a") is None)
    source.values["a"] = 3
    assert one.get("a") == two.get("a") == 3
    source.values["a"] = 4
    assert one.clear() is True
    until(lambda: one.get("a") == two.get("a") == 4)
    one.set_many({})
    one.set_many({"a": 5, "b": {"n": 2}}, ttl_seconds=LONG, idle_seconds=LONG * 2)
    assert source.values == {"a": 5, "b": {"n": 2}}
    until(lambda: two.get_many(["a", "b"]) == source.values)
    if stored:
        assert all(0 < one.remaining_seconds(key) <= LONG for key in "ab")


def test_a_listener_hears_how_entries_change(client: Any, maps: Any) -> None:
    # a name of its own: a Cluster's nodes may bring the last messages of another test
    one, two = (
        maps("heard", client=client, read={"read": 1}.get, copy_seconds=0, entries_max=2) for _ in range(2)
    )
    with one.listen() as changes:
        assert changes.take(wait_seconds=30) is None  # what was before is not known
        assert two.get("read") == 1
        two.set("a", 1)
        assert (two.replace("a", 2), two.put_if_absent("a", 3)) == (True, False)
        two.delete("a")
        two.delete("a")
        two.set("b", 1, ttl_seconds=0.01)
        until(lambda: two.get("b") is None)
        two.delete("")
        two.clear()
        two.set_many({"c": 1, "d": 2, "e": 3})
        wanted = ["created a", "updated a", "removed a", "removed a", "created b", "expired b", "removed "]
        wanted += ["cleared None", "created c", "created d", "created e", "evicted c"]
        heard = [changes.take(wait_seconds=30) for _ in wanted]
        assert [f"{change.what} {change.key}" for change in heard] == wanted
        with pytest.raises(TimeoutError):
            changes.take(wait_seconds=0)
    with pytest.raises(TypeError, match="this process alone"), maps("").listen():
        pass


def test_a_copy_costs_no_command_and_each_verb_one(single: Any, maps: Any) -> None:
    source = Source(a=1)
    one = maps(client=single, read=source.read)
    until(lambda: one.get("a") == 1 and not _commands(single, lambda: one.get("a")))
    without = maps(client=single, read=source.read, copy_seconds=0)
    without.get("a")
    without.clear()  # Redis has the scripts
    verbs = (
        lambda: without.set_many({"a": 1, "b": 2, "c": 3}),
        lambda: without.get("a"),
        lambda: without.get_many(["a", "b", "c"]),
        lambda: without.replace("b", 4),
        lambda: without.replace("b", 5, old=1),
    )
    assert [_commands(single, verb) for verb in verbs] == [1] * 5
    assert source.reads == 1


def _commands(client: Any, what: Callable[[], Any]) -> int:
    client.config_resetstat()
    what()
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


@pytest.mark.parametrize("name", ["names", ""])
def test_an_entry_ends_by_its_time_or_its_idle_time(single: Any, maps: Any, name: str) -> None:
    one = maps(name, client=single, copy_seconds=0, ttl_seconds=0.05)
    one.set("by the map", 1)
    one.set("short", 2, ttl_seconds=0.01)
    one.set("long", 3, ttl_seconds=LONG, idle_seconds=math.inf)
    one.set("unused", 4, ttl_seconds=LONG, idle_seconds=0.05)
    until(lambda: one.get("short") is None)
    until(lambda: one.get("by the map") is None)  # however often it is got
    until(lambda: threading.Event().wait(0.1) or one.get("unused") is None)
    one.set("ended", 5)
    one.set("idle", 6, ttl_seconds=math.inf, idle_seconds=LONG)
    one.set("ever", 7, ttl_seconds=math.inf)
    until(lambda: one.size() == 3)
    left = [one.remaining_seconds(key) for key in ("long", "idle", "ever", "ended", "none")]
    assert all(0 < seconds <= LONG for seconds in left[:2])
    assert left[2:] == [math.inf, 0.0, 0.0]
    one.delete("ever")
    assert (one.size(), one.get("long")) == (2, 3)


def test_the_idle_time_begins_again_with_each_use(single: Any, maps: Any) -> None:
    one = maps(client=single, copy_seconds=0, idle_seconds=LONG)
    one.set("a", 1)
    (uses,) = single.scan_iter("*:used")
    last = [single.zscore(uses, "a")]
    for use in (lambda: one.get("a"), lambda: one.get_many(["a"])):
        use()
        last.append(single.zscore(uses, "a"))
    assert last == sorted(set(last))
    assert (one.remaining_seconds("a") > 0, single.zscore(uses, "a")) == (True, last[-1])  # to look is no use


@pytest.mark.parametrize("name", ["names", ""])
def test_the_size_is_bounded_and_the_least_recently_used_go_first(single: Any, maps: Any, name: str) -> None:
    one = maps(name, client=single, entries_max=3, copy_seconds=0)
    for key in ("a", "b", "c"):
        one.set(key, key)
    assert one.get("a") == "a"
    one.set("d", "d")
    assert [one.get(key) for key in ("a", "b", "c", "d")] == ["a", None, "c", "d"]
    assert one.size() == 3


def test_nothing_is_left_in_redis_for_ever_unless_asked(client: Any, maps: Any) -> None:
    one = maps(client=client, ttl_seconds=LONG, idle_seconds=LONG)
    one.set("a", 1)
    keys = [key for node in _nodes(client) for key in node.keys("*map:{map:names}*")]
    assert len(keys) == 3
    assert all(client.pttl(key) > 0 for key in keys)
    one.set("b", 1, ttl_seconds=math.inf)
    assert sorted(client.pttl(key) > 0 for key in keys) == [False, False, True]


def _nodes(client: Any) -> list[Any]:
    if not isinstance(client, redis.RedisCluster):
        return [client]
    return [client.get_redis_connection(node) for node in client.get_primaries()]


def test_single_flight_one_of_many_processes_and_threads_reads(single: Any, maps: Any) -> None:
    inside = threading.Barrier(2, timeout=30)
    reads: list[str] = []

    def read(key: str) -> str:
        reads.append(key)
        inside.wait()
        return key.upper()

    one, two = (maps(client=single, read=read) for _ in range(2))
    copies = [partial(each.get, "a") for each in (one, one, two, two)]
    assert in_threads(*copies, inside.wait)[:4] == ["A"] * 4
    assert reads == ["a"]


@pytest.mark.parametrize("found", [{"a": "A"}, {}])
@pytest.mark.parametrize("name", ["names", ""])
def test_of_many_keys_too_one_thread_reads_what_redis_does_not_store(
    single: Any, maps: Any, name: str, found: dict[str, str]
) -> None:
    inside, reads = threading.Event(), list[str]()

    def read(key: str) -> str | None:
        reads.append(key)
        if len(reads) == 1:
            inside.set()
            until(lambda: len(reads) > 1 or one._copies().flights["a"].callers == 2)
        return found.get(key)

    one = maps(name, client=single, read=read, stored=False)

    def second() -> dict[str, str]:
        inside.wait(30)
        return one.get_many(["a"])  # type: ignore[no-any-return]

    assert in_threads(lambda: one.get_many(["a"]), second) == [found] * 2
    assert reads == ["a"]


@pytest.mark.parametrize("stored", [True, False])
def test_what_was_read_before_a_change_is_stored_nowhere(single: Any, maps: Any, stored: bool) -> None:
    values = iter(["old", "new", "newer"])
    two = maps(client=single)

    def read(key: str) -> str:
        value = next(values)
        if value == "old":
            two.delete(key)
        return value

    one = maps(client=single, read=read, stored=stored)
    assert one.get("a") == "old"
    until(lambda: one.get("a") == "new")
    assert one.get("a") == "new"


@pytest.mark.django_db
def test_with_redis_away_a_process_goes_by_its_own_copies_and_says_so(
    redis_server: redis.Redis, maps: Any, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"BREAKER_SECONDS": 0.05}
    source = Source(a=1)
    one, without = maps(read=source.read, write=source.write), maps("values")
    assert (one.get("a"), one.alone) == (1, False)
    with hanging(redis_server):
        one.set("a", 2)
        assert (one.get("a"), one.alone, one.clear()) == (2, True, False)
        without.set("b", 3)
        assert (without.get("b"), without.alone) == (3, True)
    until(lambda: (fastpath.takes_writes(), one.get("a"), maps(read=source.read).get("a"))[2] == 2)
    until(lambda: (one.get("missing"), one.alone)[1] is False)
    assert maps(copy_seconds=0).get("a") in {2, None}  # what was there before is gone


def test_a_value_is_not_kept_back_by_a_redis_that_hangs_meanwhile(
    redis_server: redis.Redis, maps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Lock.__init__.__kwdefaults__, "release_seconds", LONG)
    with contextlib.ExitStack() as meanwhile:
        assert maps(read=lambda _: meanwhile.enter_context(hanging(redis_server)) or 1).get("a") == 1


@pytest.mark.django_db
def test_a_change_that_redis_missed_is_cleared_whatever_is_answered_meanwhile(
    single: Any, maps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (maps(client=single, copy_seconds=0) for _ in range(2))
    one.set("a", "old")
    once = Script.run

    def away(*_: Any) -> Any:
        raise redis.ConnectionError

    def crossed(*arguments: Any) -> Any:
        reply = once(*arguments)
        monkeypatch.setattr(Script, "run", away)
        one.set("a", "new")
        monkeypatch.setattr(Script, "run", once)
        return reply

    monkeypatch.setattr(Script, "run", crossed)
    one.get("a")
    one.get("b")  # Redis replies again
    assert two.get("a") is None


def test_what_tasks_alone_use_hears_changes_once_redis_is_there(redis_server: redis.Redis, maps: Any) -> None:
    one, two = maps(), maps()
    fastpath.breaker.failed(open_seconds=600)
    asyncio.run(one.aset("a", "old"))
    assert asyncio.run(one.aget("a")) == "old"
    fastpath.breaker.succeeded()
    two.set("a", "new")
    until(lambda: asyncio.run(one.aget("a")) != "old")


def test_a_forks_child_has_copies_of_its_own_and_hears_changes(single: Any, maps: Any) -> None:
    inside, ours, theirs = threading.Barrier(2, timeout=30), *FORK.Pipe()
    go = threading.Event()

    def read(key: str) -> str:
        if key == "slow":
            inside.wait()
            go.wait(30)
        return key

    def child() -> None:
        theirs.send([one.get("a"), one.get_many(["a"])])
        theirs.send(one.get("slow"))  # whose lock was held here, by a thread that is the parent's alone
        until(lambda: one.get("a") == "changed")
        theirs.send(one.size())

    one = maps(client=single, read=read)
    assert one.get("a") == "a"
    reading = threading.Thread(target=one.get, args=["slow"])
    reading.start()
    inside.wait()
    process = FORK.Process(target=child)
    process.start()
    assert ours.recv() == ["a", {"a": "a"}]
    go.set()
    assert ours.recv() == "slow"
    one.set("a", "changed")
    assert (one.get("a"), ours.recv()) == ("changed", 2)
    for each in (process, reading):
        each.join(30)


def test_a_failed_read_stores_nothing_and_a_value_that_cannot_be_loaded_is_read_again(
    single: Any, maps: Any
) -> None:
    """A deployment's code may write values otherwise."""
    failures, reads = [ZeroDivisionError()], list[str]()

    def read(key: str) -> Any:
        if failures:
            raise failures.pop()
        reads.append(key)
        return Entry("read", ttl_seconds=LONG)

    old, new = maps(client=single, dumps=lambda value: "old"), maps(client=single, copy_seconds=0, read=read)
    with pytest.raises(ZeroDivisionError):
        new.get("a")
    assert [new.get("a"), new.get("a"), reads] == ["read", "read", ["a"]]
    old.set("a", 1)
    assert (new.get("a"), new.get_many(["a"])) == ("read", {"a": "read"})
    old.set("a", 1)
    assert new.get_many(["a"]) == {"a": "read"}
    assert maps(client=single).get("a") is None
    old.set("a", 1)
    with pytest.raises(ValueError, match="Expecting value"):
        maps(client=single).get("a")  # it has no other source


def test_a_read_that_gets_its_own_key_does_not_wait_for_itself(maps: Any) -> None:
    def read(key: str) -> Any:
        return one.get(key)

    one = maps("", read=read)
    with pytest.raises(RecursionError):
        one.get("a")


def test_a_map_that_nobody_uses_any_more_goes() -> None:
    one = weakref.ref(CachedMap("", read=str))
    gc.collect()
    assert one() is None


def test_every_verb_without_redis_and_for_asyncio(redis_server: redis.Redis, maps: Any, settings: Any) -> None:
    settings.IDEMPOTENCY = {"BREAKER_SECONDS": LONG}
    one = maps()

    async def story() -> list[Any]:
        first = [await one.aput_if_absent("a", value, ttl_seconds=LONG) for value in (1, 2)]
        found = [await one.aget_many(["a", "b"]), await one.asize(), await one.aremaining_seconds("a") > 0]
        await one.aset_many({"a": 3, "b": 4}, ttl_seconds=LONG)
        replaced = [await one.areplace("a", 5, old=old) for old in (1, 3)]
        items, keys = {item async for item in one.aitems()}, {key async for key in one.akeys()}
        found += [await one.aget_many(["a", "b"]), items, keys]
        await one.aset("a", 2, ttl_seconds=LONG)
        await one.adelete("b")
        return [*first, *replaced, *found, await one.aget("a"), await one.aget("b", "none")]

    async def heard() -> Change:
        async with contextlib.aclosing(one.achanges()) as changes:
            async for change in changes:
                if change is not None:
                    return change
                await one.aset("c", 1, ttl_seconds=LONG)
        raise AssertionError

    wanted = [True, False, False, True, {"a": 1}, 1, True]
    wanted += [{"a": 5, "b": 4}, {("a", 5), ("b", 4)}, {"a", "b"}, 2, "none"]
    assert asyncio.run(story()) == wanted
    assert asyncio.run(heard()) == Change("created", "c")
    assert asyncio.run(one.aclear()) is True
    with hanging(redis_server):
        assert asyncio.run(story()) == wanted
        assert one.alone is True
    fastpath.breaker.succeeded()


def test_a_value_is_replaced_only_where_there_is_one_or_the_expected_one(client: Any, maps: Any) -> None:
    for settings in ({"client": client}, {"name": ""}):
        source = Source(read={"n": 1})
        one = maps(**settings, read=source.read, write=source.write)
        assert (one.replace("a", 1), one.get("a")) == (False, None)
        one.set("a", 1)
        assert (one.replace("a", 2, ttl_seconds=LONG), one.get("a")) == (True, 2)
        assert 0 < one.remaining_seconds("a") <= LONG
        assert (one.replace("a", 4, old=1), one.get("a")) == (False, 2)
        assert (one.replace("a", 3, old=2), one.get("a")) == (True, 3)
        assert one.replace("read", 5, old={"n": 1}) is True  # a value that can be read is there
        assert source.values == {"a": 3, "read": 5}


def test_of_many_at_once_one_is_the_first_and_one_replaces_the_expected_value(client: Any, maps: Any) -> None:
    source = Source(b=2)
    alone = maps("", read=source.read, write=source.write)
    for several in ([maps(client=client, read=source.read, write=source.write) for _ in range(4)], [alone] * 4):
        source.values.pop("a", None)
        first = in_threads(*[partial(each.put_if_absent, "a", at) for at, each in enumerate(several)])
        old = first.index(True)
        assert ([each.get("a") for each in several], source.values) == ([old] * 4, {"a": old, "b": 2})
        replaced = in_threads(*[partial(each.replace, "a", at, old=old) for at, each in enumerate(several, 9)])
        assert (sum(first), sum(replaced), several[0].get("a")) == (1, 1, 9 + replaced.index(True))
        assert several[0].put_if_absent("b", 3) is False  # it can be read


def test_all_entries_are_iterated_over_by_the_page_and_not_used(client: Any, single: Any, maps: Any) -> None:
    values = {f"kéy {number}": "x" * 99 for number in range(300)}  # too long for a hash that is read at once
    for one in (maps(client=client, copy_seconds=0), maps("")):
        one.set("short", 1, ttl_seconds=0.05)
        one.set_many(values, idle_seconds=LONG)
        until(lambda one=one: dict(one.items()) == values)
        assert set(one.keys()) == values.keys()
    other = maps("others", client=single)
    other.set_many(values)
    (uses,) = single.scan_iter("*others}:used")
    before = single.zrange(uses, 0, -1, withscores=True)
    assert _commands(single, lambda: next(other.items())) == 1
    assert 2 <= _commands(single, lambda: list(other.items())) <= 8
    assert single.zrange(uses, 0, -1, withscores=True) == before


NO_TIMES = (math.nan, -math.inf, 1e10, True, "5")
NO_TEXTS = (None, 5, b"x", "\ud800")
WRONG: dict[str, tuple[Any, ...]] = {
    "ttl_seconds": (*NO_TIMES, 0),
    "idle_seconds": (*NO_TIMES, 0),
    "copy_seconds": (*NO_TIMES, None),
    "entries_max": (0, 1.5, True, "5", None),
    "name": NO_TEXTS,
    "key": NO_TEXTS,
}


@pytest.mark.parametrize("argument", WRONG)
def test_a_wrong_argument_is_refused_where_it_is_given(maps: Any, argument: str) -> None:
    one, make = maps("", read=lambda key: "read"), partial(maps, name="")
    changes = [partial(one.set, value=2), partial(one.put_if_absent, value=2), partial(one.replace, value=2)]
    lives = [make, partial(Entry, 2), partial(one.set_many, {"b": 2}), *(partial(each, "b") for each in changes)]
    jobs: dict[str, list[Callable[..., Any]]] = {
        "ttl_seconds": lives,
        "idle_seconds": lives,
        "key": [one.get, one.delete, one.remaining_seconds, *changes, lambda key: one.get_many([key])],
    }
    jobs["key"].append(lambda key: asyncio.run(one.aget(key)))
    for job in jobs.get(argument, [make]):
        for value in WRONG[argument]:
            with pytest.raises(ValueError, match=f"{argument}.* must be "):
                job(**{argument: value})
    assert dict(one.items()) == {}
