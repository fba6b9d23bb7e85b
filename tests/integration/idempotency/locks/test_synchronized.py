"""Functions, coroutines and tasks that run one at a time for a name."""

import asyncio
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import celery
import pytest

from idempotency import locks
from idempotency.locks import LockTimeout, synchronized
from tests.integration.idempotency.locks.conftest import Bench


def faced(bench: Bench, body: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or a coroutine function that does the same."""

    @functools.wraps(body)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        return await asyncio.to_thread(body, *arguments, **named)

    return awaited if bench.loop else body


def test_the_name_is_made_of_the_arguments_as_the_function_takes_them(bench: Bench) -> None:
    seen = []

    def body(order_id: int, *, item: Any, region: str = "eu") -> Any:
        seen.append(region)
        return order_id

    name = "order:{order_id}:{item.sku}:{region}"
    whole = synchronized(name, client=bench.client, when_taken="skip")(faced(bench, body))
    lock, mug = bench.make("Lock", "order:7:mug:eu"), SimpleNamespace(sku="mug")
    one, two = bench.actors(2)
    assert one.do(lock.acquire)
    assert two.do(lambda: whole(7, item=mug)) is None
    assert two.do(lambda: whole(order_id=7, item=mug, region="us")) == 7
    assert two.do(lambda: whole(8, item=mug)) == 8
    assert one.do(lambda: whole(7, item=mug)) == 7  # a holder may again
    one.do(lock.release)
    assert two.do(lambda: whole(7, item=mug)) == 7
    assert seen == ["us", "eu", "eu", "eu"]


@pytest.mark.parametrize("how", [{"when_taken": "raise"}, {"when_taken": "wait", "wait_seconds": 0.01}])
def test_it_raises_where_the_lock_is_taken(one: Bench, how: dict[str, Any]) -> None:
    def body(order_id: int) -> None:
        raise AssertionError("it ran")

    whole = synchronized("order:{order_id}", client=one.client, **how)(faced(one, body))
    holder, caller = one.actors(2)
    assert holder.do(one.make("Lock", "order:7").acquire)
    with pytest.raises(LockTimeout, match="order:7"):
        caller.do(lambda: whole(7))
    with pytest.raises(AssertionError, match="it ran"):
        caller.do(lambda: whole(8))
    with pytest.raises(AssertionError, match="it ran"):  # and was released
        holder.do(lambda: whole(8))


def test_calls_at_once_wait_for_each_other(one: Bench) -> None:
    done: list[int] = []

    def body(order_id: int) -> int:
        one.waits(3 - len(done), "order:7")  # all the others do
        done.append(order_id)
        return order_id

    work = synchronized("order:{order_id}", client=one.client)(faced(one, body))
    answers = [actor.begin(lambda: work(7)) for actor in one.actors(4)]
    assert [answer.result(30) for answer in answers] == done == [7] * 4


def test_a_time_out_of_the_functions_own_is_not_skipped(desk: Bench) -> None:
    @synchronized("order", client=desk.client, when_taken="skip")
    def work() -> None:
        raise LockTimeout("of another lock")

    with pytest.raises(LockTimeout, match="of another lock"):
        work()


def test_a_celery_task(desk: Bench) -> None:
    app = celery.Celery("shop", broker="memory://")
    app.conf.task_always_eager = True

    @app.task(bind=True)
    @synchronized("order:{order_id}", client=desk.client, when_taken="skip")
    def close(self: Any, order_id: int, reason: str = "late") -> str:
        return f"{self.name.rpartition('.')[2]} {order_id} {reason}"

    assert close.delay(7).get() == "close 7 late"
    assert desk.actor().do(desk.make("Lock", "order:7").acquire)
    assert close.delay(order_id=7).get() is None
    assert close.apply_async((8, "paid")).get() == "close 8 paid"
    with pytest.raises(TypeError, match="put @synchronized on the function"):
        synchronized("order")(close)


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("name", "function", "sentence"),
    [
        (
            "order:{id}",
            lambda order_id: order_id,
            "has no argument 'id', which the lock's name 'order:{id}' needs",
        ),
        ("order:{0}", lambda order_id: order_id, "has no argument '0'"),
        ("order:{}", lambda **any_of_them: None, "has no argument ''"),
        ("order", _generator, "returns before its work is done"),
        ("order", _async_generator, "returns before its work is done"),
    ],
)
def test_what_could_not_be_named_or_held_is_refused(name: str, function: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence.replace("{", r"\{").replace("}", r"\}")):
        synchronized(name)(function)


def test_work_that_would_be_done_after_the_release_is_refused(desk: Bench) -> None:
    """As of a decorator that hides from Python what is async."""
    work = asyncio.sleep(0)
    try:
        for later in (work, _generator(), _async_generator()):
            with pytest.raises(TypeError, match="returns before its work is done"):
                synchronized("order", client=desk.client)(lambda later=later: later)()
    finally:
        work.close()


def test_what_to_do_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="when_taken must be wait, skip or raise, not 'skipp'"):
        synchronized("order", when_taken="skipp")  # type: ignore[arg-type]


def test_names_from_any_keywords(desk: Bench) -> None:
    @synchronized("{kind}:{options[id]}", client=desk.client, when_taken="raise")
    def work(**given: Any) -> bool:
        return locks.Lock("order:7", client=desk.client).held

    assert work(kind="order", options={"id": 7}) is True
    assert asyncio.iscoroutinefunction(work) is False
