"""The examples of docs/how-to/once-without-http.md run, one after the other, and each happens once."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group

from idempotency import once
from idempotency.models import ConsumedMessage, LedgerEntry
from tests import pages
from tests.integration.idempotency.functions.work import place

pytestmark = pytest.mark.django_db(transaction=True)

ORDER, TASK, CONSUMER, LIGHT = pages.blocks("docs/how-to/once-without-http.md")


def test_an_order() -> None:
    orders = SimpleNamespace(objects=SimpleNamespace(create=lambda basket_id: SimpleNamespace(pk=place()["id"])))
    results = [pages.run(ORDER, Order=orders, basket_id=7)["result"] for _ in range(2)]
    assert results == [{"order": Group.objects.get().pk}] * 2


def test_a_task() -> None:
    sent: list[tuple[int, str]] = []
    mailer = SimpleNamespace(send=lambda order_id, message_id: sent.append((order_id, message_id)))
    receipt = pages.run(TASK, mailer=mailer)["receipt"]
    for order_id in (7, 7, 8):
        receipt(order_id)
    assert [order_id for order_id, _ in sent] == [7, 8]
    assert len({message_id for _, message_id in sent}) == 2


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
