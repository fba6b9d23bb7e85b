"""Facts in any order and number: one state; and what is never credited."""

from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from payments.models import Anomaly, Attempt, JournalLine, Observation, Payment, Refund
from payments.settlement import anomalies
from payments.settlement.decision import Outcome
from payments.settlement.settle import rederive, settle_here
from payments.states import FINAL, AnomalyKind
from tests.integration.payments.conftest import (
    OpenAttempt,
    closed,
    fold,
    number_of,
    order_of,
    paid,
    payment_of,
    refunded,
)

ONE, OTHER = "a" * 32, "b" * 32


def test_a_transaction_is_needed(open_attempt: OpenAttempt) -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        settle_here(paid(open_attempt()), source="query")


@pytest.mark.usefixtures("server_side_binding")
def test_every_kind_of_fact_where_the_driver_takes_a_statement_at_a_time(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    second = open_attempt("alipay", order_of(attempt))
    parts = refunded(attempt, 90, ONE), refunded(attempt, 1900, OTHER)
    assert fold(parts[0], paid(attempt), parts[1], paid(second), closed(second)) == [
        Outcome.HELD,
        *[Outcome.APPLIED] * 2,
        Outcome.ANOMALY,
        Outcome.APPLIED,
    ]
    payment = payment_of(attempt)
    assert (payment.status, payment.refunded_minor, order_of(attempt).status) == ("refunded", 1990, "refunded")
    counted = JournalLine.objects.filter(account="orders").values_list("amount_minor", flat=True)
    assert [*counted] == [-1990, 90, 1900]


def test_a_refund_counts_in_the_currency_of_the_payment_alone(open_attempt: OpenAttempt) -> None:
    """An attempt at Stripe may have two charges; a refund need not name its own."""
    attempt = open_attempt("stripe")
    fold(paid(attempt), paid(attempt, provider_txn_id="pi_other", currency="USD"))
    dollars, euros = (
        replace(refunded(attempt, 500, number), currency=currency)
        for number, currency in ((ONE, "USD"), (OTHER, "EUR"))
    )
    assert fold(dollars, euros) == [Outcome.APPLIED, Outcome.ANOMALY]
    assert payment_of(attempt).refunded_minor == 0
    mismatched = Anomaly.objects.filter(kind="amount_mismatch").values_list("detail__currency", flat=True)
    assert [*mismatched.order_by("pk")] == ["USD", "EUR"]  # the charge, and the refund of no charge that is known


@pytest.mark.parametrize(
    ("channel", "changed"), [("wechat", {}), ("alipay", {"amount_minor": 5}), ("wechat", {"currency": "USD"})]
)
def test_a_second_charge_where_a_number_is_charged_once_is_held_for_a_person(
    open_attempt: OpenAttempt, channel: str, changed: dict[str, Any]
) -> None:
    """A refund goes by our number there: it would give back the one charge that is real."""
    attempt = open_attempt(channel)
    second = paid(attempt, provider_txn_id="4200-other", **changed)
    assert fold(paid(attempt), second, second) == [Outcome.APPLIED, Outcome.ANOMALY, Outcome.ANOMALY]
    assert (payment_of(attempt).status, payment_of(attempt).paid_minor) == ("succeeded", 1990)
    anomaly = Anomaly.objects.get()
    assert (anomaly.kind, anomaly.reference) == ("content_changed", f"{attempt.merchant}/4200-other")
    assert (anomaly.resolved_at, anomaly.detail["charged_as"]) == (None, paid(attempt).provider_txn_id)
    assert (Refund.objects.count(), Observation.objects.get().provider_txn_id) == (0, number_of(attempt))
    assert not JournalLine.objects.filter(account="held").exists()


@pytest.mark.parametrize("channel", ["wechat", "alipay", "stripe"])
def test_another_merchants_word_changes_none_of_our_attempts(open_attempt: OpenAttempt, channel: str) -> None:
    attempt = open_attempt(channel)
    sibling = open_attempt("alipay" if channel == "wechat" else "wechat", order_of(attempt))
    before = Attempt.objects.get(pk=sibling.pk).next_query_at
    foreign = {"merchant": "1900000999", "provider_txn_id": "4200-other"}
    facts = [
        paid(attempt, **foreign),
        replace(refunded(attempt, 90, ONE), **foreign),
        replace(closed(attempt), merchant="1900000999"),
    ]
    assert fold(*facts) == [Outcome.ANOMALY] * 3
    for row in (attempt, sibling):
        row.refresh_from_db()
        assert (row.status, row.next_query_at is None) == ("pending", False)
    assert sibling.next_query_at == before
    assert {anomaly.kind for anomaly in Anomaly.objects.all()} == {"merchant_mismatch"}
    assert (Observation.objects.count(), Refund.objects.count(), payment_of(attempt).paid_minor) == (0, 0, 0)
    assert fold(paid(attempt)) == [Outcome.APPLIED]
    assert (payment_of(attempt).status, order_of(attempt).status) == ("succeeded", "paid")


@pytest.mark.parametrize(
    ("kind", "elsewhere"),
    [("content_changed", {}), ("unknown_trade", {"out_trade_no": "f" * 32, "provider_txn_id": "4200-foreign"})],
)
def test_a_third_content_is_open_work_again(
    open_attempt: OpenAttempt, kind: str, elsewhere: dict[str, str]
) -> None:
    attempt = open_attempt()
    one, other = (paid(attempt, amount_minor=amount_minor, **elsewhere) for amount_minor in (1, 2))
    fold(paid(attempt), one)
    anomaly = Anomaly.objects.get()
    assert (anomaly.kind, anomaly.detail["amount_minor"]) == (kind, 1)
    assert anomaly.detail.get("first_minor") == (None if elsewhere else 1990)
    anomalies.resolve(anomaly.pk, resolution="seen")
    for fact, is_open in ((one, False), (other, True)):
        assert fold(fact) == [Outcome.ANOMALY]
        anomaly.refresh_from_db()
        assert (anomaly.resolved_at is None, anomaly.detail["amount_minor"]) == (is_open, 2 if is_open else 1)
    assert (Anomaly.objects.count(), payment_of(attempt).paid_minor) == (1, 1990)


def test_each_refund_beyond_what_was_paid_is_open_work_again(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    refunds = [refunded(attempt, 1500, number) for number in (ONE, OTHER, "c" * 32)]
    fold(paid(attempt), *refunds[:2])
    anomaly = Anomaly.objects.get()
    assert (anomaly.kind, payment_of(attempt).refunded_minor) == ("refund_exceeds_paid", 1990)
    anomalies.resolve(anomaly.pk, resolution="seen")
    with transaction.atomic():
        rederive(Payment.objects.get().pk)
    fold(refunds[1])
    anomaly.refresh_from_db()
    assert anomaly.resolution == "seen"
    fold(refunds[2])
    anomaly.refresh_from_db()
    assert (anomaly.resolved_at, anomaly.resolution) == (None, "")
    assert anomaly.detail == {"paid_minor": 1990, "refunded_minor": 4500}


def test_the_database_refuses_a_second_payment_attempt_or_fact(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    fold(paid(attempt))
    second, money = open_attempt(), {"amount_minor": 1, "currency": "CNY"}
    known = {
        "channel": "wechat",
        "merchant": attempt.merchant,
        "provider_txn_id": number_of(attempt),
        "kind": "paid",
    }
    same_way = {"payment": payment_of(second), "channel": "wechat", "method": second.method}
    for row in (
        Payment(order_id=payment_of(attempt).order_id, **money),
        Observation(attempt=second, source="query", **known, **money),
        Attempt(**same_way, merchant="m", expires_at=second.expires_at, **money),
    ):
        with pytest.raises(IntegrityError):
            row.save(force_insert=True)


def test_what_is_final_stays_so_when_it_is_filed_again_and_the_same_opens_nothing() -> None:
    def file(**detail: str) -> Anomaly:
        with transaction.atomic():
            anomalies.file_anomaly(AnomalyKind.REFUND_FAILED, channel="wechat", reference="r-1", detail=detail)
        return Anomaly.objects.get(reference="r-1")

    file(message="card gone", **FINAL)
    Anomaly.objects.update(resolved_at=timezone.now())
    assert file(message="card gone").resolved_at is not None
    again = file(message="recorded by hand")
    assert (again.resolved_at, again.detail) == (None, {"message": "recorded by hand", **FINAL})
