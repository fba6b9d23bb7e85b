"""`once.task`: the decorator, under the ones of task queues, receivers and commands."""

import inspect
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


def test_each_call_is_a_keyed_one() -> None:
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


def test_the_key_alone_may_separate_calls() -> None:
    @once.task("n", key=lambda number: number, payload=None)
    def ignoring(number: int, thing: object) -> Any:
        return place()

    assert ignoring(1, object()) == ignoring(1, object())

    @once.task("m", key=lambda number: number, payload=lambda thing: thing["sku"])
    def choosing(number: int, thing: Any) -> Any:
        return place()

    assert choosing(1, {"sku": 1, "at": 1}) == choosing(1, {"sku": 1, "at": 2})
    with pytest.raises(KeyReused):
        choosing(1, {"sku": 2})


def test_principal_and_tenant_are_of_the_arguments_too() -> None:
    @once.task("n", key=lambda **given: "k", principal=lambda user: user, tenant=lambda shop: shop)
    def of_someone(user: str, shop: str) -> Any:
        return place()

    for user, shop in [("a", "s"), ("b", "s"), ("a", "t"), ("a", "s")]:
        of_someone(user, shop)
    assert Group.objects.count() == 3


def test_arguments_that_are_not_json_are_named() -> None:
    @once.task("n", key=lambda number: number)
    def broken(number: int, thing: object) -> None: ...

    with pytest.raises(TypeError, match=r"payload of once\('n'\) is not JSON .* payload=None"):
        broken(1, object())
    with pytest.raises(TypeError, match="missing a required argument"):
        broken(1)


def test_it_looks_like_the_function_and_gets_its_call() -> None:
    seen: list[str] = []

    @once.task("n", key=lambda number: number)
    def asking(number: int, call: Any) -> int:
        seen.append(call.key_digest)
        return number

    assert asking(7) == asking(7) == 7
    assert len(seen) == 1
    assert receipt.__name__ == "receipt"
    assert list(inspect.signature(asking).parameters) == ["number"]


def test_a_coroutine_function_stays_one() -> None:
    @once.task("n", key=lambda number: number)
    async def coroutine(number: int) -> str:
        made = await Group.objects.acreate(name=f"made {number}")
        return made.name

    async def twice() -> list[str]:
        return [await coroutine(7), await coroutine(7)]

    assert iscoroutinefunction(coroutine)
    assert async_to_sync(twice)() == ["made 7", "made 7"]


def test_a_receiver_of_a_signal() -> None:
    paid = Signal()

    @receiver(paid)
    @once.task("order.ship", key=lambda order: order.pk, payload=None)
    def ship(sender: object, order: Group, **given: Any) -> Any:
        return place("shipped")

    order = Group.objects.create(name="order")
    results = [paid.send(sender=None, order=order)[0][1] for _ in range(2)]
    assert results[0] == results[1]
    assert Group.objects.filter(name__startswith="shipped").count() == 1


def test_a_management_command() -> None:
    class Command(BaseCommand):
        @once.task("books.close", key=lambda self, **options: options["month"], payload=None)
        def handle(self, *args: Any, **options: Any) -> Any:
            return place()

    months = ["2026-10", "2026-11", "2026-11"]
    first, second, copy = [Command().handle(month=month) for month in months]
    assert first != second == copy


def bill(day: str, *, dry: bool = False) -> str:
    raise NotImplementedError


def test_a_name_of_another_task_is_refused_where_it_is_written() -> None:
    """A worker of Celery runs no system checks."""
    with pytest.raises(TypeError, match=rf"{__name__}\.bill.*name of {__name__}\.receipt, and equal keys"):
        once.task("mail.greeting", key=lambda day: day)(bill)


def test_a_module_that_is_imported_under_two_names_has_its_tasks_once() -> None:
    """As `tasks` and `project.tasks`, as `__main__`, or again by `importlib.reload`."""
    for module in ("bills", "project.bills", "bills"):
        again = FunctionType(bill.__code__, {"__name__": module}, "bill")
        once.task("bills.twice", key=lambda day: day)(again)


@pytest.mark.parametrize("by", ["delay", "enqueue", "defer", "send", "call_local"])
def test_a_task_of_a_queue_is_refused(by: str) -> None:
    """Of Celery and RQ, `django.tasks` (not callable), procrastinate, dramatiq and huey."""
    task: Any = SimpleNamespace(**{by: print})
    with pytest.raises(TypeError, match=r"returns before its work is done.*below the decorator of a task queue"):
        once.task("bills.pay", key=lambda day: day)(task)


def test_what_cannot_be_honoured_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"It has no 'date', but day, dry\."):
        once.task("bills.pay", key=lambda date: date)(bill)
    with pytest.raises(TypeError, match="It has no 'who'"):
        once.task("bills.pay", key=lambda day: day, principal=lambda who: who)(bill)
    wrong: list[dict[str, Any]] = [{"name": "bills pay"}, {"lease": 0}, {"wait": -1}]
    for given in wrong:
        with pytest.raises(ValueError, match=rf"{next(iter(given))} (is not usable|must be)"):
            once.task(**{"name": "bills.pay", "key": lambda day: day, **given})
    key: Any = "day"
    with pytest.raises(TypeError, match=r"key is a function of the arguments.*not 'day'"):
        once.task("bills.pay", key=key)(bill)
