"""Events of a payment: once, in order, over any number of workers, whatever dies."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.test import override_settings
from procrastinate.contrib.django.models import ProcrastinateJob

from payments.models import Payment, PaymentEvent
from payments.settlement import events
from payments.settlement.apply import queue_refund
from payments.settlement.decision import PolicyRefund
from shop.models import Fulfilment, Order
from tests.integration.payments.conftest import OpenAttempt, closed, fold, payment_of
from tests.payments_settings import changed
from tests.threads import as_a_job, at_once

WORKERS = 4

_noted: list[tuple[str, int]] = []
_failing: set[int] = set()
_meeting: list[threading.Barrier] = []


def listener(event: PaymentEvent) -> None:
    if _meeting:
        _meeting[0].wait(20)
    if event.number in _failing:
        raise ValueError("the warehouse is closed")
    _noted.append((event.payment_id.hex, event.number))


@pytest.fixture
def noted() -> Any:
    _noted.clear()
    _failing.clear()
    _meeting.clear()
    with override_settings(PAYMENTS=changed(EVENTS=f"{__name__}.listener")):
        yield _noted


def test_a_worker_s_job_for_a_refund_is_undone_with_the_refund() -> None:
    refund = PolicyRefund(id=uuid4(), attempt_id=uuid4(), payment_id=uuid4(), amount_minor=1, reason="paid twice")

    def undone() -> None:
        with transaction.atomic():
            queue_refund(refund)
            transaction.set_rollback(True)

    as_a_job(undone)
    assert not ProcrastinateJob.objects.filter(queueing_lock=refund.id.hex).exists()


def test_each_status_is_an_event(settled: Callable[[], Payment]) -> None:
    events = settled().events.values_list("number", "status")
    assert [*events] == [(2, "succeeded"), (3, "partially_refunded"), (4, "refunded")]


def test_the_longest_waiting_are_handled_first(
    noted: Any, settled: Callable[[], Payment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PASS_PAYMENTS", 2)
    payments = [settled() for _ in range(3)]
    for count, heard in ((6, payments[:2]), (3, payments), (0, payments)):
        assert events.handle_waiting() == count
        assert [who for who, number in noted if number == 2] == [payment.id.hex for payment in heard]


def test_workers_at_once_keep_each_payments_order(noted: Any, settled: Callable[[], Payment]) -> None:
    payments = [settled() for _ in range(3)]
    at_once(*[lambda payment=payment: events.handle(payment.pk) for payment in payments for _ in range(WORKERS)])
    assert len(noted) == 9
    for payment in payments:
        assert [number for who, number in noted if who == payment.id.hex] == [2, 3, 4]
    assert not PaymentEvent.objects.filter(handled_at__isnull=True).exists()


def test_other_payments_go_on_beside_it(noted: Any, settled: Callable[[], Payment]) -> None:
    one, other = settled(), settled()
    PaymentEvent.objects.filter(number__gt=2).delete()
    _meeting.append(threading.Barrier(2))
    at_once(*[events.handle_waiting] * 2)
    assert sorted(noted) == sorted([(one.id.hex, 2), (other.id.hex, 2)])


def test_what_fails_keeps_its_own_successors_waiting(
    noted: Any, settled: Callable[[], Payment], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = settled()
    _failing.add(3)
    with pytest.raises(ValueError, match="closed"):
        events.handle(stuck.pk)
    assert noted == [(stuck.id.hex, 2)]
    free = settled()
    PaymentEvent.objects.filter(payment=free, number=3).update(number=30)
    monkeypatch.setattr(events, "PASS_PAYMENTS", 1)
    assert events.handle_waiting(again=True) == 3, "the least failed first"
    assert [number for who, number in noted if who == free.id.hex] == [2, 30, 4]
    assert [events.handle_waiting(again=again) for again in (False, True)] == [0, 0]
    assert list(stuck.events.values_list("number", "attempts")) == [(2, 0), (3, 2), (4, 0)]
    _failing.clear()
    assert events.handle_waiting(again=True) == 2
    assert [number for who, number in noted if who == stuck.id.hex] == [2, 3, 4]


def test_the_warehouse_hears_it_in_order(settled: Callable[[], Payment]) -> None:
    payment = settled()
    events._handle_next(payment.pk)
    fulfilment = Fulfilment.objects.get(order_id=payment.order_id)
    assert (fulfilment.status, fulfilment.number) == ("released", 2)
    assert events.handle(payment.pk) == 2
    fulfilment.refresh_from_db()
    assert (fulfilment.status, fulfilment.number) == ("recalled", 4)
    assert fulfilment.released_at is not None
    assert events.handle(payment.pk) == 0


def test_an_order_that_was_closed_unpaid_is_no_business_of_the_warehouse(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    fold(closed(attempt), source="close")
    payment = payment_of(attempt)
    assert (payment.status, events.handle(payment.pk)) == ("closed", 1)
    assert not Fulfilment.objects.exists()
    assert Order.objects.get().status == "pending"
