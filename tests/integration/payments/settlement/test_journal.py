"""The books: every movement at a provider twice, and the balance says what belongs to whom."""

import random
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import Sum

from idempotency.postgres.statements import UnexpectedRows, send
from payments.models import JournalEntry, JournalLine, Observation
from payments.operations import figures
from payments.settlement import journal
from payments.settlement.state import FactRow
from shop.models import Order
from tests.integration.payments.conftest import OpenAttempt, closed, fold, paid, payment_of, refunded


def balance(currency: str = "CNY") -> dict[str, int]:
    """Every account that is not at zero, without the merchant's number; checked to add up to zero."""
    found = {row.account: row.balance_minor for row in figures.trial_balance() if row.currency == currency}
    assert sum(found.values()) == 0
    return {name.rpartition(":")[0] or name: amount for name, amount in found.items() if amount}


def test_a_refund_that_came_early_is_held_and_counted_when_its_payment_is_known(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    fold(refunded(attempt, 990, "a" * 32))
    assert balance() == {"provider:wechat": -990, "held": 990}
    fold(paid(attempt))
    assert balance() == {"provider:wechat": 1000, "orders": -1000}
    assert JournalEntry.objects.filter(kind="counted").count() == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the charge first", "the refund first"])
def test_another_currency_that_went_back_is_at_zero(open_attempt: OpenAttempt, order: tuple[int, int]) -> None:
    attempt = open_attempt("stripe")
    facts = [replace(fact, currency="USD") for fact in (paid(attempt), refunded(attempt, 1990, "a" * 32))]
    fold(*(facts[index] for index in order))
    assert balance("USD") == balance() == {}
    assert set(JournalLine.objects.values_list("account", flat=True)) == {
        f"provider:stripe:{attempt.merchant}",
        "held",
    }
    payment = payment_of(attempt)
    assert (payment.paid_minor, payment.refunded_minor) == (0, 0)


def test_a_fact_is_booked_and_counted_once(open_attempt: OpenAttempt) -> None:
    fold(refunded(open_attempt(), 990, "a" * 32))
    stored = FactRow(*Observation.objects.values_list(*(field.name for field in fields(FactRow))).get())
    send(journal.counted(stored))
    with pytest.raises(IntegrityError, match="a fact stays"), transaction.atomic():
        send(journal.counted(stored))
    with pytest.raises(IntegrityError, match="journal_once_per_fact"), transaction.atomic():
        JournalEntry.objects.create(observation=Observation.objects.get(), kind="counted")
    with pytest.raises(UnexpectedRows), transaction.atomic():
        send(journal.counted(replace(stored, provider_txn_id="unknown")), commit=True)


def test_the_books_agree_with_the_payments(open_attempt: OpenAttempt, new_order: Callable[[], Order]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(12):
        order = new_order()
        attempts = [open_attempt("wechat", order), open_attempt("alipay", order)]
        facts: list[Any] = []
        for attempt in attempts:
            number = attempt.out_trade_no
            facts += [
                paid(attempt, amount_minor=rng.choice([1990, 1990, 2090])),
                closed(attempt),
                refunded(attempt, 100, f"{number[:31]}1"),
                refunded(attempt, 200, f"{number[:31]}2"),
            ]
        facts = [replace(fact, currency=rng.choice(["CNY", "CNY", "USD"])) for fact in facts]
        said = rng.sample(facts, rng.randrange(1, len(facts) + 1)) * 2
        rng.shuffle(said)
        fold(*said)
        payment = payment_of(attempts[0])
        of_payment = JournalLine.objects.filter(entry__observation__attempt__payment=payment)
        by_account = dict(of_payment.values_list("account").annotate(Sum("amount_minor")).order_by("account"))
        assert by_account.get("orders", 0) == payment.refunded_minor - payment.paid_minor
        for attempt in attempts:
            at_provider = by_account.get(f"provider:{attempt.channel}:{attempt.merchant}", 0)
            moved = Observation.objects.filter(attempt=attempt)
            received = sum(fact.amount_minor for fact in moved if fact.kind == "paid")
            returned = sum(fact.amount_minor for fact in moved if fact.kind == "refunded")
            assert at_provider == received - returned
    for currency in ("CNY", "USD"):
        balance(currency)
