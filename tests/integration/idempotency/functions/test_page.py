"""The examples of docs/how-to/once-without-http.md and docs/how-to/key-a-task.md run."""

from types import SimpleNamespace
from typing import Any

import django
import procrastinate
import pytest
from django.contrib.auth.models import Group
from procrastinate.testing import InMemoryConnector

from idempotency import InProgress, once
from idempotency.models import ConsumedMessage, LedgerEntry
from tests import pages
from tests.integration.idempotency.functions.work import place

pytestmark = pytest.mark.django_db(transaction=True)

ORDER, CONSUMER, LIGHT = pages.blocks("docs/how-to/once-without-http.md")
CELERY, PROCRASTINATE, DJANGO = pages.blocks("docs/how-to/key-a-task.md")
TASKS = "django.tasks" if django.VERSION >= (6,) else "django_tasks"  # before Django 6 a package of its own


def test_an_order() -> None:
    orders = SimpleNamespace(objects=SimpleNamespace(create=lambda basket_id: SimpleNamespace(pk=place()["id"])))
    results = [pages.run(ORDER, Order=orders, basket_id=7)["result"] for _ in range(2)]
    assert results == [{"order": Group.objects.get().pk}] * 2


def once_each(receipt: Any, sent: list[tuple[int, str]]) -> None:
    """Call the page's task for two orders, one of them twice."""
    for order_id in (7, 7, 8):
        receipt(order_id)
    assert [order_id for order_id, _ in sent] == [7, 8]
    assert len({message_id for _, message_id in sent}) == 2


@pytest.fixture
def sent() -> list[tuple[int, str]]:
    return []


@pytest.fixture
def mailer(sent: list[tuple[int, str]]) -> Any:
    return SimpleNamespace(send=lambda order_id, message_id: sent.append((order_id, message_id)))


def test_a_task_of_celery(mailer: Any, sent: list[tuple[int, str]]) -> None:
    receipt = pages.run(CELERY, mailer=mailer)["receipt"]
    once_each(receipt, sent)
    assert receipt.max_retries is None, "it is retried for longer than the lease"


def test_a_task_of_procrastinate(
    mailer: Any, sent: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = procrastinate.App(connector=InMemoryConnector())
    monkeypatch.setattr("procrastinate.contrib.django.app", app)
    receipt = pages.run(PROCRASTINATE, mailer=mailer)["receipt"]
    once_each(receipt, sent)
    strategy = receipt.retry_strategy
    assert (strategy.retry_exceptions, strategy.max_attempts) == ({InProgress}, None)


def test_a_task_of_django(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{TASKS}.backends.immediate.ImmediateBackend"}}
    counted: list[str] = []

    def of_day(day: str) -> Any:
        return SimpleNamespace(update=lambda counted: rows(day))

    def rows(day: str) -> int:
        counted.append(day)
        return 3

    stock = SimpleNamespace(objects=SimpleNamespace(filter=of_day))
    count = pages.run(DJANGO.replace("django.tasks", TASKS), Stock=stock)["count"]
    results = [count.enqueue(day).return_value for day in ("2026-11-26", "2026-11-26", "2026-11-27")]
    assert (results, counted) == ([{"counted": 3}] * 3, ["2026-11-26", "2026-11-27"])


def test_consumers() -> None:
    applied: list[Any] = []
    acknowledged: list[int] = []
    message = SimpleNamespace(id="m1", value={"sku": "mug"}, acknowledge=lambda: acknowledged.append(1))
    pages.run(CONSUMER, once=once, messages=[message, message], apply=applied.append)
    assert (applied, len(acknowledged)) == ([{"sku": "mug"}], 2)
    assert LedgerEntry.objects.filter(scope="once:stock.apply").count() == 1
    for _ in range(2):
        pages.run(LIGHT, message=message, apply=applied.append)
    assert (len(applied), ConsumedMessage.objects.count()) == (2, 1)
