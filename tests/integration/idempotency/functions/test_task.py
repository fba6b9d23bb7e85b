"""`once.task`: the decorator, under the ones of task queues, receivers and commands."""

import inspect
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand
from django.dispatch import Signal, receiver

from idempotency import KeyReused, once
from tests.integration.idempotency.functions.work import place

pytestmark = pytest.mark.django_db(transaction=True)


@once.task("mail.greeting", key=lambda order_id: order_id)
def receipt(order_id: int, copies: int = 1) -> dict[str, int]:
    return place() | {"copies": copies}


def test_each_call_is_a_keyed_one_also_for_a_later_version_with_more_arguments() -> None:
    first = receipt(7)
    assert receipt(7) == receipt(order_id=7) == receipt(7, copies=1) == first
    assert receipt(8) != first
    with pytest.raises(KeyReused):
        receipt(7, copies=2)

    @once.task("mail.greeting", key=lambda order_id: order_id)
    def of_a_later_version(order_id: int, copies: int = 1, language: str = "en") -> Any:
        return place()

    assert of_a_later_version(7) == first
    assert Group.objects.count() == 2


def test_functions_of_its_arguments_say_what_separates_calls() -> None:
    @once.task("n", key=lambda order, **_: order, payload=None)
    def by_key(order: int, thing: object) -> Any:
        return place()

    @once.task("m", key=lambda order, **_: order, payload=lambda thing: thing["sku"])
    def by_sku(order: int, thing: Any) -> Any:
        return place()

    @once.task("o", key=lambda **_: "k", principal=lambda user: user, tenant=lambda shop: shop)
    def by_caller(user: str, shop: str) -> Any:
        return place()

    assert by_key(1, object()) == by_key(1, object())
    assert by_sku(1, {"sku": 1, "at": 1}) == by_sku(1, {"sku": 1, "at": 2})
    with pytest.raises(KeyReused):
        by_sku(1, {"sku": 2})
    made = [by_caller(user, shop)["id"] for user, shop in ("as", "bs", "at", "as")]
    assert (made[0], len(set(made))) == (made[3], 3)


def test_it_looks_like_the_function_and_gets_its_call() -> None:
    seen: list[str] = []

    @once.task("n", key=lambda number: number)
    def asking(number: int, call: Any) -> int:
        seen.append(call.key_digest)
        return number

    assert asking(7) == asking(7) == 7
    assert len(seen) == 1
    assert (receipt.__name__, list(inspect.signature(asking).parameters)) == ("receipt", ["number"])


def test_it_stands_below_a_receiver_on_a_command_and_on_a_coroutine_function() -> None:
    paid = Signal()

    @receiver(paid)
    @once.task("order.ship", key=lambda order: order, payload=None)
    def ship(sender: object, order: int, **given: Any) -> Any:
        return place()

    class Command(BaseCommand):
        @once.task("books.close", key=lambda self, **options: options["month"], payload=None)
        def handle(self, *args: Any, **options: Any) -> Any:
            return place()

    @once.task("n", key=lambda number: number)
    async def coroutine(number: int) -> Any:
        return {"id": (await Group.objects.acreate(name=f"made {number}")).pk}

    assert iscoroutinefunction(coroutine)
    ways: list[Callable[[int], Any]] = [
        lambda number: paid.send(sender=None, order=number)[0][1],
        lambda number: Command().handle(month=number),
        async_to_sync(coroutine),
    ]
    for way in ways:
        first, second, copy = (way(number) for number in (1, 2, 2))
        assert first != second == copy


def bill(day: str, *, dry: bool = False) -> str:
    raise NotImplementedError


def test_a_name_of_another_task_is_refused_and_a_module_imported_twice_has_its_tasks_once() -> None:
    """Celery runs no checks, and may import a module as `tasks` and `project.tasks`."""
    with pytest.raises(TypeError, match=rf"{__name__}\.bill.*name of {__name__}\.receipt, and equal keys"):
        once.task("mail.greeting", key=lambda day: day)(bill)
    for module in ("bills", "project.bills", "bills"):
        again = FunctionType(bill.__code__, {"__name__": module}, "bill")
        once.task("bills.twice", key=lambda day: day)(again)


@pytest.mark.parametrize("by", ["delay", "enqueue", "defer", "send", "call_local"])
def test_a_task_of_a_queue_is_refused(by: str) -> None:
    """Of Celery and RQ, `django.tasks` (not callable), procrastinate, dramatiq and huey."""
    task: Any = SimpleNamespace(**{by: print})
    with pytest.raises(TypeError, match=r"returns before its work is done.*below the decorator of a task queue"):
        once.task("bills.pay", key=lambda day: day)(task)


def test_what_cannot_be_honoured_is_refused_where_it_is_written() -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"key": lambda date: date}, TypeError, r"It has no 'date', but day, dry\."),
        ({"principal": lambda who: who}, TypeError, "It has no 'who'"),
        ({"key": "day"}, TypeError, r"key is a function of the arguments.*not 'day'"),
        ({"name": "bills pay"}, ValueError, "name is not usable"),
        ({"lease": 0}, ValueError, "lease must be"),
        ({"wait": -1}, ValueError, "wait must be"),
    ]
    for given, error, sentence in wrong:
        with pytest.raises(error, match=sentence):
            once.task(**{"name": "bills.pay", "key": lambda day: day, **given})(bill)


def test_a_call_whose_arguments_are_missing_or_not_json_is_refused() -> None:
    @once.task("n", key=lambda number: number)
    def broken(number: int, thing: object) -> None: ...

    with pytest.raises(TypeError, match=r"payload of once\('n'\) is not JSON .* payload=None"):
        broken(1, object())
    with pytest.raises(TypeError, match="missing a required argument"):
        broken(1)
