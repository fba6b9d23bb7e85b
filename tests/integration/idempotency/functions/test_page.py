"""The examples of docs/how-to/once-without-http.md run, one after the other, and each happens once."""

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group

from idempotency import once
from idempotency.models import ConsumedMessage, LedgerEntry
from tests.integration.idempotency.functions.work import ROOT, place

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = ROOT / "docs" / "how-to" / "once-without-http.md"


def shared_task(**options: Any) -> Any:
    """Celery's, as far as a call of the task itself goes; tests need not install it."""
    return lambda function: function


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the example that has this line, with the names that the page takes from the reader's project."""
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    celery: Any = ModuleType("celery")
    celery.shared_task = shared_task
    monkeypatch.setitem(sys.modules, "celery", celery)
    names: dict[str, Any] = {}

    def named(line: str, **given: Any) -> dict[str, Any]:
        (example,) = (each for each in examples if line in each)
        names.update(given)
        exec(compile(example, str(PAGE), "exec"), names)
        return names

    named.examples = len(examples)  # type: ignore[attr-defined]
    return named


def test_an_order(run: Any) -> None:
    assert run.examples == 4
    orders = SimpleNamespace(objects=SimpleNamespace(create=lambda basket_id: SimpleNamespace(pk=place()["id"])))
    results = [run("orders.place", Order=orders, basket_id=7)["result"] for _ in range(2)]
    assert results == [{"order": Group.objects.get().pk}] * 2


def test_a_task(run: Any) -> None:
    sent: list[tuple[int, str]] = []
    mailer = SimpleNamespace(send=lambda order_id, message_id: sent.append((order_id, message_id)))
    receipt = run("mail.receipt", mailer=mailer)["receipt"]
    for order_id in (7, 7, 8):
        receipt(order_id)
    assert [order_id for order_id, _ in sent] == [7, 8]
    assert len({message_id for _, message_id in sent}) == 2


def test_consumers(run: Any) -> None:
    applied: list[Any] = []
    acknowledged: list[int] = []
    message = SimpleNamespace(id="m1", value={"sku": "mug"}, acknowledge=lambda: acknowledged.append(1))
    run("stock.apply", once=once, messages=[message, message], apply=applied.append)
    assert (applied, len(acknowledged)) == ([{"sku": "mug"}], 2)
    assert LedgerEntry.objects.filter(scope="once:stock.apply").count() == 1
    for _ in range(2):
        run("import consume_once", message=message)
    assert (len(applied), ConsumedMessage.objects.count()) == (2, 1)
