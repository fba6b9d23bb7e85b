"""`once()` runs a function once per key and gives every copy the first result."""

import asyncio
import gc
import json
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import wraps
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.test import override_settings

from idempotency import InProgress, KeyReused, Problem, ResultExpired, once
from idempotency.maintenance.decisions import Decision, abandon, resolve
from idempotency.models import LedgerEntry
from tests.integration.idempotency.functions.work import place
from tests.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[None, 30], ids=["atomic", "leased"])
def lease(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["run", "arun"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Run a function by a call's `run`, and as a coroutine function by its `arun`."""

    def by(call: Any, function: Any, *args: Any, **given: Any) -> Any:
        if request.param == "run":
            return call.run(function, *args, **given)

        @wraps(function)
        async def coroutine(*args: Any, **given: Any) -> Any:
            return await sync_to_async(function)(*args, **given)

        return async_to_sync(call.arun)(coroutine, *args, **given)

    return by


def test_another_key_name_principal_or_tenant_is_another_call(lease: Any) -> None:
    once("orders.place", key="7", lease=lease).run(place)
    once("orders.place", key=7, lease=lease).run(place)  # the same: a number is its text, as is a UUID
    once("orders.place", key=UUID(int=7), lease=lease).run(place)
    once("orders.place", key=str(UUID(int=7)), lease=lease).run(place)
    once("orders.cancel", key="7", lease=lease).run(place)
    once("orders.place", key="7", principal="ann", lease=lease).run(place)
    once("orders.place", key="7", tenant="ann", lease=lease).run(place)
    scopes = {entry.scope.removesuffix("once:orders.place") for entry in LedgerEntry.objects.all()}
    assert (Group.objects.count(), scopes) == (5, {"", "once:orders.cancel", "by:ann ", "tenant:ann "})


def test_all_callers_get_what_json_gives_back(lease: Any) -> None:
    result = [None, True, 0, 1.5, "文", {"a": (1, 2)}, {}]
    given: list[Any] = [once("n", key="k", lease=lease).run(lambda: result) for _ in range(2)]
    assert given == [[None, True, 0, 1.5, "文", {"a": [1, 2]}, {}]] * 2


def test_a_result_that_is_not_json_undoes_the_call(run: Any) -> None:
    def broken(result: object) -> object:
        place()
        return result

    for result in ({1, 2}, float("nan"), "\ud800", object()):
        with pytest.raises(TypeError, match=r"once\('n'\) got a result that is not JSON"):
            run(once("n", key="k"), broken, result)
    assert (Group.objects.count(), LedgerEntry.objects.count()) == (0, 0)
    assert run(once("n", key="k"), lambda: 1) == 1


def test_a_time_limit_that_interrupts_a_query_frees_the_key(lease: Any) -> None:
    """The exception of a signal, as of a soft time limit of Celery, leaves the reply unread."""

    def limited() -> None:
        connection.ensure_connection()
        connection.connection.pgconn.send_query(b"SELECT 1")
        raise TimeoutError("time is up")

    with pytest.raises(TimeoutError, match="time is up"):
        once("n", key="k", lease=lease).run(limited)
    assert once("n", key="k", lease=lease).run(place) == {"id": Group.objects.get().pk}


@pytest.mark.parametrize("redis", ["default", None])
def test_copies_at_the_same_instant_happen_once(lease: Any, redis: str | None) -> None:
    def copy() -> Any:
        return once("n", key="k", lease=lease, wait=1e9).run(place)  # the longest, and no limit of PostgreSQL's

    with override_settings(IDEMPOTENCY={"REDIS": redis}):
        results = at_once(*[copy] * 8)
    assert results == [{"id": Group.objects.get().pk}] * 8


async def test_copies_on_one_event_loop_happen_once(transactional_db: None, lease: Any) -> None:
    async def aplace() -> dict[str, Any]:
        made = await sync_to_async(place)()
        return {**made, "in_transaction": await sync_to_async(lambda: connection.in_atomic_block)()}

    calls = [once("n", key="k", payload=1, lease=lease, wait=30).arun(aplace) for _ in range(8)]
    results = await asyncio.gather(*calls)
    assert results == [results[0]] * 8
    assert results[0]["in_transaction"] is (lease is None)
    with pytest.raises(KeyReused):
        await once("n", key="k", payload=2, lease=lease).arun(aplace)
    assert await Group.objects.acount() == 1
    await sync_to_async(connections.close_all)()  # asgiref's shared thread would outlive the database


@asynccontextmanager
async def a_request() -> AsyncIterator[None]:
    """Have a thread of its own, as a request under Django's ASGI handler."""
    async with ThreadSensitiveContext():
        await sync_to_async(connections.all)()
        yield


class OfARequest:
    """Call inside a request under ASGI."""

    def __init__(self, *, enabled: bool = True, fails: Exception | None = None) -> None:
        self.inside, self.go, self.enabled, self.fails = asyncio.Event(), asyncio.Event(), enabled, fails

    async def slow(self) -> str:
        await Group.objects.acreate(name="slow")
        self.inside.set()
        await self.go.wait()
        await Group.objects.acreate(name="late")
        if self.fails:
            raise self.fails
        return "done"

    async def call(self) -> str:
        try:
            with override_settings(IDEMPOTENCY={"ENABLED": self.enabled}):
                return await once("n", key="k").arun(self.slow)
        finally:
            await sync_to_async(connections.close_all)()

    async def request(self) -> str:
        async with a_request():
            return await self.call()


async def counts() -> tuple[int, int]:
    """How many effects and entries are committed."""
    try:
        return await Group.objects.acount(), await LedgerEntry.objects.acount()
    finally:
        await sync_to_async(connections.close_all)()


@pytest.mark.parametrize(
    ("error", "logged"), [(None, []), (InProgress(), []), (RuntimeError("fails"), ["idempotency"])]
)
async def test_a_request_that_is_cancelled_twice_ends_with_its_call_and_only_a_fault_is_logged(
    transactional_db: None, caplog: pytest.LogCaptureFixture, error: Exception | None, logged: list[str]
) -> None:
    of = OfARequest(fails=error)
    request = asyncio.create_task(of.request())
    await of.inside.wait()
    for _ in range(2):
        request.cancel()
        for _ in range(5):  # turns of the loop, for what the cancellation wakes
            await asyncio.sleep(0)
    of.go.set()
    with pytest.raises(asyncio.CancelledError):
        await request
    gc.collect()  # asyncio says then what nobody has looked at
    assert [each.name for each in caplog.records if each.levelname == "ERROR"] == logged
    assert await counts() == ((0, 0) if error else (2, 1))


async def test_calls_of_a_request_wait_for_each_other_by_await_alone(transactional_db: None) -> None:
    """A queue would wait for ever where the handler of one awaits the other."""
    of, calls = OfARequest(), list[Any]()
    async with a_request():
        calls.append(asyncio.create_task(of.call()))
        await of.inside.wait()
        with pytest.raises(RuntimeError, match=r"await calls one after the other, not by gather\(\)"):
            await once("n", key="beside").arun(of.slow)
        of.go.set()
        assert await calls[0] == "done"
    assert await counts() == (2, 1)


async def test_a_leased_call_does_not_end_in_the_transaction_of_another(transactional_db: None) -> None:
    """A rollback would take the leased call's result along, and a retry would do it again."""
    of = OfARequest(fails=ValueError("undone"))

    async def leased() -> str:
        await of.inside.wait()
        return "done outside"

    async with a_request():
        outside = asyncio.create_task(once("n", key="outside", lease=30).arun(leased))
        while not await LedgerEntry.objects.aexists():
            await asyncio.sleep(0)
        inside = asyncio.create_task(of.call())
        with pytest.raises(RuntimeError, match=r"not by gather\(\)"):
            await outside
        of.go.set()
        with pytest.raises(ValueError, match="undone"):
            await inside


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
async def test_a_call_that_outlives_its_request_is_done_or_undone_as_a_whole(
    transactional_db: None, enabled: bool, fails: bool
) -> None:
    """As with a server that stops: it cancels what awaits the request, and the request alone."""
    of = OfARequest(enabled=enabled, fails=RuntimeError("fails") if fails else None)
    async with a_request():
        call = asyncio.create_task(of.call())
        await of.inside.wait()
    of.go.set()
    with pytest.raises(RuntimeError, match="fails") if fails else nullcontext():
        assert await call == "done"
    assert await counts() == ((0, 0) if fails else (2, int(enabled)))


@pytest.mark.parametrize("begins", ["without a request", "in its request", "after its request"])
async def test_the_last_to_end_leaves_no_thread_and_no_connection(transactional_db: None, begins: str) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def used() -> str:
        await Group.objects.acreate(name="used")
        places.extend(await sync_to_async(lambda: (threading.current_thread(), connections["default"]))())
        inside.set()
        await go.wait()
        return "done"

    async def begin() -> Any:
        if begins == "after its request":
            await go.wait()
        return await once("n", key="k").arun(used)

    places: list[Any] = []
    async with nullcontext() if begins == "without a request" else a_request():
        call = asyncio.create_task(begin())
        if begins != "after its request":
            await inside.wait()
    go.set()
    assert await call == "done"
    thread, database = places
    await asyncio.to_thread(thread.join, 20)
    assert (thread.is_alive(), database.connection) == (False, None)


def test_while_one_runs_a_copy_hears_in_progress(lease: Any) -> None:
    def outer() -> str:
        def copy() -> Any:
            with pytest.raises(InProgress) as busy:
                once("n", key="k", lease=lease, wait=0).run(place)
            return busy.value.headers

        (headers,) = at_once(copy)
        assert headers == {"Retry-After": "1"}
        return "done"

    with override_settings(IDEMPOTENCY={"WAIT_SECONDS": 30}):
        assert once("n", key="k", lease=lease).run(outer) == "done"
    assert Group.objects.count() == 0


def test_inside_a_transaction_it_refuses_as_a_view_does(lease: Any) -> None:
    """Without autocommit each statement is in one."""
    sentence = r"open on 'default'.*Remove atomic\(\) or ATOMIC_REQUESTS.*transaction\.on_commit, or consume_once"
    with transaction.atomic(), pytest.raises(RuntimeError, match=sentence):
        once("n", key="k", lease=lease).run(place)
    transaction.set_autocommit(False)
    try:
        with pytest.raises(RuntimeError, match=r"set_autocommit\(False\)"):
            once("n", key="k", lease=lease).run(place)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert once("n", key="k", lease=lease).run(place) == {"id": Group.objects.get().pk}


def test_the_function_may_ask_for_its_call(run: Any, lease: Any) -> None:
    seen: list[Any] = []

    def about(number: int, *, call: Any) -> int:
        call.about("order", f"{number}\x00\ud800")
        seen.append((call.resumed, call.key_digest))
        if len(seen) == 1:
            place()
            raise RuntimeError("the first one broke")
        return number

    with pytest.raises(RuntimeError, match="the first one broke"):
        run(once("n", key="k", lease=lease), about, 7)
    assert Group.objects.count() == (1 if lease else 0)
    assert run(once("n", key="k", lease=lease), about, number=7) == 7
    assert [resumed for resumed, _ in seen] == [False, lease is not None]
    assert seen[0][1] == seen[1][1]
    assert LedgerEntry.objects.get().subject == "order:7??"  # what PostgreSQL stores of it


def test_an_operator_decides_a_leased_call() -> None:
    def broken() -> None:
        raise RuntimeError("nobody knows")

    for key in ("abandoned", "resolved"):
        with pytest.raises(RuntimeError, match="nobody knows"):
            once("n", key=key, lease=30).run(broken)
    entries = {entry.key: entry for entry in LedgerEntry.objects.all()}
    by_hand = {key: Decision(entry_id=e.pk, fence=e.fence, operator="ann", note="-") for key, e in entries.items()}
    abandon(by_hand["abandoned"])
    resolve(by_hand["resolved"], status=200, body='{"id": 7}')
    with pytest.raises(Problem, match="operation_abandoned"):
        once("n", key="abandoned", lease=30).run(broken)
    assert once("n", key="resolved", lease=30).run(lambda: {"id": 0}) == {"id": 7}


def test_mistakes_are_named() -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"key": ""}, ValueError, "key of once.'n'. is not usable: it is empty"),
        ({"key": "k" * 256}, ValueError, "it has 256 characters, 255 are allowed"),
        ({"key": "a b"}, ValueError, "only visible ASCII"),
        ({"key": True}, TypeError, "must be a str, an int or a UUID"),
        ({"name": "a b"}, ValueError, "name is not usable: only visible ASCII"),
        ({"name": 5}, TypeError, "name must be a str, not 5"),
        ({"name": "n" * 97}, ValueError, "it has 97 characters, 96 are allowed"),
        ({"principal": "a b"}, ValueError, r"principal of once.'n'. is not usable"),
        ({"lease": 0}, ValueError, "lease must be above 0"),
        ({"lease": 10**10}, ValueError, "lease must be above 0 and at most 1000000000"),
        ({"wait": -1}, ValueError, "wait must be 0 or above"),
        ({"lease": "60"}, ValueError, "lease must be above 0 and at most 1000000000 .31 years., not '60'"),
        ({"payload": object()}, TypeError, "payload of once.'n'. is not JSON .*object is not JSON serializable"),
    ]
    for given, error, sentence in wrong:
        with pytest.raises(error, match=sentence):
            once(**{"name": "n", "key": "k", **given})

    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="arun"):
        once("n", key="k").run(coroutine)


async def test_a_plain_function_is_not_awaited(transactional_db: None) -> None:
    for plain in (lambda: {"id": 1}, str):
        with pytest.raises(TypeError, match=r"returned no awaitable.*once\(…\)\.run\)"):
            await once("n", key="k").arun(plain)  # type: ignore[arg-type]


def test_with_keys_disabled_it_runs_each_time() -> None:
    with override_settings(IDEMPOTENCY={"ENABLED": False}):
        results = [once("n", key="k").run(place) for _ in range(2)]
        assert [once("n", key="k").run(lambda: (1, 2)) for _ in range(2)] == [[1, 2]] * 2
    assert (results[0] != results[1], LedgerEntry.objects.count()) == (True, 0)


def test_its_errors_travel_between_processes() -> None:
    """Pickled, or made again from their arguments, as Celery does."""
    by_a_view = Problem(409, "no", "No.", by=1)
    assert vars(pickle.loads(pickle.dumps(by_a_view))) == vars(by_a_view)
    for error in (InProgress(7), KeyReused(), ResultExpired("/a"), Problem(409, "no", "No.")):
        for copy in (pickle.loads(pickle.dumps(error)), type(error)(*json.loads(json.dumps(error.args)))):
            assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
