"""The tables of allowed steps agree with the triggers: every pair of statuses, by raw SQL."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from payments import states
from payments.models import Attempt, Refund
from shop.models import Order, OrderStatus
from shop.models import order as orders
from tests.integration.payments.conftest import fold, opened, paid, refund_asked


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Rows of `table` take the steps `next`, each beginning with the first status of it."""

    table: str
    next: Mapping[Any, Collection[str]]
    refusals: frozenset[str]  # the constraints that a forbidden step is refused by
    with_it: Mapping[str, str] = field(
        default_factory=dict
    )  # what a row of that status has, to be refused for nothing else
    over: Mapping[str, str] = field(default_factory=dict)  # the status in between, where none leads there directly

    def step(self, row: object, status: str) -> None:
        more = self.with_it.get(status, "")
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {self.table} SET status = %s{more} WHERE id = %s", [status, row])
            assert cursor.rowcount == 1

    def refusal(self, row: object, before: str, after: str) -> str:
        """Return the constraint that refuses the step from `before` to `after`, if one does."""
        begins = next(iter(self.next))
        with transaction.atomic():
            for status in (self.over.get(before), before):
                if status not in {None, begins}:
                    self.step(row, str(status))
            try:
                self.step(row, after)
            except DatabaseError as error:
                return str(error.__cause__.diag.constraint_name)  # type: ignore[union-attr]
            else:
                return ""
            finally:
                transaction.set_rollback(True)


UNPAID = ", paid_minor = 0, refunded_minor = 0, version = version + 1"
PAYMENT = Machine(
    table="payments_payment",
    next=states.NEXT,
    refusals=frozenset({"payment_step_is_allowed", "payment_totals_only_grow"}),
    with_it={
        **dict.fromkeys(("pending", "uncertain", "closed"), UNPAID),
        "succeeded": ", paid_minor = amount_minor, refunded_minor = 0, version = version + 1",
        "partially_refunded": ", paid_minor = amount_minor, refunded_minor = 1, version = version + 1",
        "refunded": ", paid_minor = amount_minor, refunded_minor = amount_minor, version = version + 1",
    },
)
ATTEMPT = Machine(
    table="payments_attempt", next=states.ATTEMPT_NEXT, refusals=frozenset({"attempt_step_is_allowed"})
)
REFUND = Machine(table="payments_refund", next=states.REFUND_NEXT, refusals=frozenset({"refund_step_is_allowed"}))
ORDER = Machine(
    table="shop_order",
    next=orders.NEXT,
    refusals=frozenset({"order_step_is_allowed"}),
    with_it={
        "pending": ", paid_at = NULL, closed_at = NULL, version = version + 1",
        "closed": ", paid_at = NULL, closed_at = now(), version = version + 1",
        **dict.fromkeys(("paid", "refunded"), ", paid_at = now(), closed_at = NULL, version = version + 1"),
    },
    over={"refunded": "paid"},
)


@pytest.fixture
def attempt(new_order: Callable[[], Order], channels: None) -> Attempt:
    return opened(new_order())


def refund_of(attempt: Attempt) -> Refund:
    fold(paid(attempt), source="query")
    return refund_asked(attempt.payment_id, 500)


@pytest.mark.parametrize(
    ("machine", "row_of"),
    [
        (PAYMENT, lambda attempt: attempt.payment_id),
        (ATTEMPT, lambda attempt: attempt.pk),
        (REFUND, lambda attempt: refund_of(attempt).pk),
        (ORDER, lambda attempt: attempt.payment.order_id),
    ],
    ids=["payment", "attempt", "refund", "order"],
)
def test_the_database_takes_the_steps_of_the_table_and_no_others(
    machine: Machine, row_of: Callable[[Attempt], object], attempt: Attempt
) -> None:
    row, statuses = row_of(attempt), [str(status) for status in machine.next]
    every = [(before, after) for before in statuses for after in statuses]
    judged = {(before, after): machine.refusal(row, before, after) for before, after in every}

    in_the_table = {(str(before), str(after)) for before, afters in machine.next.items() for after in afters}
    to_stay = {(status, status) for status in statuses}
    assert {pair for pair, refusal in judged.items() if not refusal} == in_the_table | to_stay
    assert set(judged.values()) <= {"", *machine.refusals}


def test_every_status_is_in_its_table() -> None:
    assert set(states.NEXT) == set(states.PaymentStatus)
    assert set(states.ATTEMPT_NEXT) == set(states.AttemptStatus)
    assert set(states.REFUND_NEXT) == set(states.RefundStatus)
    assert set(orders.NEXT) == set(OrderStatus)


def test_no_step_leads_from_paid_to_unpaid() -> None:
    paid = {
        states.PaymentStatus.SUCCEEDED,
        states.PaymentStatus.PARTIALLY_REFUNDED,
        states.PaymentStatus.REFUNDED,
    }
    assert all(states.NEXT[status] <= paid for status in paid)
    ended = {OrderStatus.PAID, OrderStatus.REFUNDED}
    assert all(orders.NEXT[status] <= ended for status in ended)
