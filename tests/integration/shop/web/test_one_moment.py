"""The order's page and the API show one moment, though a payment comes in meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection

from shop.web.orderview import Stage, view_of
from tests.integration.shop.settling import number_of, settle
from tests.threads import at_once

Paid = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def paid_after_a_read_of(order_id: str, channels: Any) -> Paid:
    @contextmanager
    def block(table: str) -> Iterator[None]:
        to_come = [channels["wechat"].pay(number_of(order_id, "wechat"))]

        def pay_after_the_read(execute: Any, sql: str, *rest: Any) -> Any:
            found = execute(sql, *rest)
            if to_come and f'FROM "{table}"' in sql:
                at_once(lambda: settle(to_come.pop()))
            return found

        with connection.execute_wrapper(pay_after_the_read):
            yield
        assert not to_come

    return block


@pytest.mark.parametrize("table", ["shop_order", "payments_attempt"])
def test_the_page(table: str, order_id: str, demo: User, paid_after_a_read_of: Paid) -> None:
    """Else a shopper who has paid is asked how to pay, until the page is loaded again."""
    with paid_after_a_read_of(table):
        found = view_of(order_id=UUID(order_id), user_id=demo.pk)
    assert (found.stage, found.charge) == (Stage.PAYING, None)
    found = view_of(order_id=UUID(order_id), user_id=demo.pk)
    assert found.stage is Stage.PAID
    assert found.charge


def test_the_api(order_id: str, caller: Any, paid_after_a_read_of: Paid) -> None:
    address = f"payments/{caller.get(f'orders/{order_id}').json()['payment']}"
    with paid_after_a_read_of("payments_payment"):
        found = caller.get(address)
    assert (found["ETag"], found.json()["status"]) == ('"2"', "pending")
    assert [attempt["status"] for attempt in found.json()["attempts"]] == ["pending"]
    assert caller.get(address).json()["status"] == "succeeded"
