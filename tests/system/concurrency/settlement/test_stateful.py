"""Threads settle one payment's facts in any mixture; after each step its rows add up."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from payments.errors import OrderAlreadyPaid, RefundExceedsPaid
from payments.models import Anomaly, Attempt, JournalLine, Observation
from payments.providers.base import Fact
from payments.refunds import steps as refunds
from payments.settlement import decide, read
from payments.settlement.settle import settle, step_attempt
from payments.states import AnomalyKind, AttemptStatus
from shop.models import Order
from shop.orders import lifecycle
from tests.integration.payments.conftest import closed, opened, order_of, paid, payment_of, refunded
from tests.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 4


class Settling(RuleBasedStateMachine):
    """One order, its attempts, and everything that can be reported of them."""

    open_attempt: Callable[..., Attempt]

    @initialize()
    def an_order(self) -> None:
        self.first = self.open_attempt()
        self.attempts = [self.first]

    @rule()
    def another_way_to_pay(self) -> None:
        order = order_of(self.first)
        if len(self.attempts) == 1 and order.status == "pending" and order.closing_at is None:
            try:
                other = opened(order, "alipay")
            except OrderAlreadyPaid:
                assert payment_of(self.first).paid_minor
                return
            assert step_attempt(other, among=["created"], status=AttemptStatus.PENDING)
            self.attempts.append(other)

    @rule(data=st.data())
    def facts_at_once(self, data: st.DataObject) -> None:
        pool = st.sampled_from([fact for attempt in self.attempts for fact in self._facts(attempt)])
        chosen = data.draw(st.lists(pool, min_size=THREADS, max_size=THREADS))
        at_once(*[lambda fact=fact: settle(fact, source="query") for fact in chosen])

    @rule(amount_minor=st.sampled_from([500, 990, 1990]))
    def refund_while_it_is_reported(self, amount_minor: int) -> None:
        def reserve() -> None:
            try:
                with transaction.atomic():
                    refunds.request_refund(payment_id=self.first.payment_id, amount_minor=amount_minor, reason="")
            except (RefundExceedsPaid, Attempt.DoesNotExist):
                assert payment_of(self.first).reserved_minor <= payment_of(self.first).paid_minor

        at_once(reserve, lambda: settle(refunded(self.first, 400, "c" * 32), source="query"), reserve)

    @rule()
    def more_is_given_back_than_was_paid(self) -> None:
        settle(*self._facts(self.first), refunded(self.first, 400, "c" * 32), source="query")

    @rule()
    def cancel_while_it_is_paid(self) -> None:
        order = order_of(self.first)

        def cancel() -> None:
            with transaction.atomic():
                Order.objects.filter(pk=order.pk, status="pending").update(closing_at=timezone.now())
                lifecycle._close_here(order_id=order.pk)

        at_once(cancel, lambda: settle(paid(self.first), source="query"))

    @invariant()
    def the_rows_add_up(self) -> None:
        state = read.state_by_id(self.first.payment_id)
        settled = decide.refresh(state).state
        assert settled is not None
        assert replace(settled.payment, version=state.payment.version) == state.payment
        paid_once = [fact for fact in state.facts if fact.kind == "paid" and fact.credited]
        assert len(paid_once) <= 1
        assert (order_of(self.first).status in {"paid", "refunded"}) == bool(paid_once)

    @invariant()
    def the_books_agree(self) -> None:
        payment = payment_of(self.first)
        lines = JournalLine.objects.filter(entry__observation__attempt__payment=payment)
        balance: dict[str, int] = {}
        for account, amount_minor in lines.values_list("account", "amount_minor"):
            balance[account] = balance.get(account, 0) + amount_minor
        assert sum(balance.values()) == 0
        kept = balance.get("orders", 0)
        # more may be reported as given back than was paid: the books have it, and a person hears of it
        filed = Anomaly.objects.filter(kind=AnomalyKind.REFUND_EXCEEDS_PAID, payment=payment).exists()
        assert filed == (kept > 0)
        assert min(kept, 0) == payment.refunded_minor - payment.paid_minor

    @invariant()
    def each_fact_is_stored_once(self) -> None:
        rows = Observation.objects.filter(attempt__payment=self.first.payment_id)
        identities = list(rows.values_list("channel", "merchant", "provider_txn_id", "kind"))
        assert len(identities) == len(set(identities))

    def _facts(self, attempt: Attempt) -> list[Fact]:
        return [
            paid(attempt),
            closed(attempt),
            refunded(attempt, 990, "a" * 32),
            refunded(attempt, 1000, "b" * 32, implies_payment=True),
        ]


def test_whatever_meets_at_the_same_instant_adds_up(open_attempt: Callable[..., Attempt]) -> None:
    class Machine(Settling):
        pass

    Machine.open_attempt = staticmethod(open_attempt)
    settled: Any = settings(
        max_examples=10,
        stateful_step_count=8,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(Machine, settings=settled)
