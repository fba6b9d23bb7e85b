"""The books: every movement at a provider twice, and the balance says what belongs to whom."""

from dataclasses import fields, replace

import pytest
from django.db import IntegrityError, transaction

from idempotency.postgres.statements import UnexpectedRows, send
from payments.models import JournalEntry, Observation
from payments.settlement import journal
from payments.settlement.state import FactRow
from tests.integration.payments.conftest import OpenAttempt, books, fold, paid, refunded


def test_a_refund_that_came_early_is_held_and_counted_when_its_payment_is_known(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    fold(refunded(attempt, 990, "a" * 32))
    assert books() == {"provider": -990, "held": 990}
    fold(paid(attempt))
    assert books() == {"provider": 1000, "orders": -1000}
    assert JournalEntry.objects.filter(kind="counted").count() == 1


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
