"""Where a provider's word is missing, foreign or refused: nothing is released, credited or given back on a guess."""

from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction
from rest_framework.test import APIClient

from payments.attempts import submission
from payments.errors import OutcomeUnknown, ProviderRejected, RefundExceedsPaid
from payments.models import Anomaly, Attempt, Payment, Refund
from payments.providers.base import Fact
from payments.refunds import steps as refunds
from payments.settlement.decision import Outcome
from payments.settlement.settle import settle
from tests.integration.payments.settlement.facts.bank import Bank, closed, paid, refunded
from tests.integration.payments.settlement.facts.conftest import PRICE_MINOR, make_attempt

pytestmark = pytest.mark.django_db(transaction=True)

TOO_MANY = ProviderRejected("FREQUENCY_LIMITED", "ask less often")


def tell(fact: Fact) -> Outcome:
    return settle(fact, source="test")[0]


def ask_back(attempt: Attempt, amount_minor: int) -> Refund:
    with transaction.atomic():
        return refunds.request_refund(payment_id=attempt.payment_id, amount_minor=amount_minor, reason="")


@pytest.fixture
def attempt(banks: dict[str, Bank]) -> Attempt:
    return make_attempt()


@pytest.fixture
def bought(attempt: Attempt) -> Attempt:
    """An attempt that was paid."""
    assert tell(paid(attempt.out_trade_no)) is Outcome.APPLIED
    return attempt


def test_a_refused_question_does_not_fail_the_attempt(attempt: Attempt, banks: dict[str, Bank]) -> None:
    """A failed attempt would free the shopper to pay by a second number while the first may still be paid."""
    bank = banks["wechat"]
    bank.late_failures["create"] = OutcomeUnknown("no answer")
    assert submission.submit_attempt(attempt.id).status == "uncertain"
    bank.failures["query"] = TOO_MANY

    assert submission.submit_attempt(attempt.id).status == "uncertain"

    attempt.refresh_from_db()
    assert (attempt.status, bank.calls) == ("uncertain", ["create", "query"])
    del bank.failures["query"]
    assert submission.submit_attempt(attempt.id).status == "pending"


def test_a_refused_question_keeps_the_refund_reserved(bought: Attempt, banks: dict[str, Bank]) -> None:
    """Failed, it would release money that the provider may already have given back."""
    bank = banks["wechat"]
    refund = ask_back(bought, PRICE_MINOR)
    bank.late_failures["refund"] = OutcomeUnknown("no answer")
    assert refunds.submit_refund(refund.id).status == "uncertain"
    bank.failures["query_refund"] = TOO_MANY

    assert refunds.submit_refund(refund.id).status == "uncertain"

    with pytest.raises(RefundExceedsPaid):
        ask_back(bought, 1)
    assert not Anomaly.objects.exists()
    del bank.failures["query_refund"]
    assert refunds.submit_refund(refund.id).status == "succeeded"
    assert bank.calls.count("refund") == 1


def test_what_went_back_by_hand_adds_to_what_is_reserved(bought: Attempt) -> None:
    tell(refunded(bought.out_trade_no, "by hand", amount_minor=900))
    ask_back(bought, 1000)

    with pytest.raises(RefundExceedsPaid):
        ask_back(bought, 91)
    assert ask_back(bought, 90).amount_minor == 90


def test_a_refund_that_succeeded_is_counted_once(bought: Attempt) -> None:
    first = ask_back(bought, 1000)
    assert refunds.submit_refund(first.id).status == "succeeded"

    with pytest.raises(RefundExceedsPaid):
        ask_back(bought, 991)
    rest = ask_back(bought, 990)
    assert refunds.submit_refund(rest.id).status == "succeeded"
    assert Payment.objects.get().status == "refunded"


def test_another_merchant_neither_closes_nor_refunds(attempt: Attempt) -> None:
    number = attempt.out_trade_no
    assert tell(closed(number, merchant="somebody")) is Outcome.ANOMALY
    attempt.refresh_from_db()
    assert attempt.status == "created"
    tell(paid(number))

    foreign = refunded(number, "f", amount_minor=500, implies=False, merchant="somebody")
    assert tell(foreign) is Outcome.ANOMALY
    tell(refunded(number, "ours", amount_minor=90))

    assert Payment.objects.get().refunded_minor == 90
    assert set(Anomaly.objects.values_list("kind", flat=True)) == {"merchant_mismatch"}


def test_a_refund_in_another_currency_is_not_counted(bought: Attempt) -> None:
    foreign = refunded(bought.out_trade_no, "f", amount_minor=500, implies=False, currency="USD")

    assert tell(foreign) is Outcome.ANOMALY

    assert Payment.objects.get().refunded_minor == 0


def test_paid_with_nothing_is_filed_without_a_refund(attempt: Attempt) -> None:
    """There is nothing to give back, and the provider must not be made to send it for ever."""
    assert tell(paid(attempt.out_trade_no, amount_minor=0)) is Outcome.ANOMALY
    assert Anomaly.objects.get().kind == "amount_mismatch"
    assert not Refund.objects.exists()


@pytest.mark.parametrize(
    ("permissions", "status", "code"),
    [
        ([], 404, "payment_not_found"),
        (["view_payment"], 403, "refund_not_allowed"),
        (["view_payment", "add_refund"], 201, ""),
    ],
)
def test_who_may_refund_anothers_payment(bought: Attempt, permissions: list[str], status: int, code: str) -> None:
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.set(
        Permission.objects.filter(codename__in=permissions, content_type__app_label="payments")
    )
    api = APIClient()
    api.force_authenticate(clerk)

    answer = api.post(
        f"/api/v1/payments/{bought.payment_id.hex}/refunds",
        {"amount_minor": 90},
        format="json",
        headers={"Idempotency-Key": uuid4().hex},
    )

    assert answer.status_code == status
    assert answer.json().get("code", "") == code
    assert Refund.objects.count() == (status == 201)


@pytest.mark.parametrize(("kept", "status"), [([], 404), (["view_payment"], 403)])
def test_a_replay_of_anothers_refund_asks_for_the_permission_again(
    bought: Attempt, kept: list[str], status: int
) -> None:
    clerk = User.objects.create_user("clerk", is_staff=True)
    permissions = Permission.objects.filter(content_type__app_label="payments")
    clerk.user_permissions.set(permissions.filter(codename__in=["view_payment", "add_refund"]))
    statuses = []
    for _ in range(2):
        api = APIClient()
        api.force_authenticate(User.objects.get(pk=clerk.pk))
        address = f"/api/v1/payments/{bought.payment_id.hex}/refunds"
        answer = api.post(address, {"amount_minor": 90}, format="json", headers={"Idempotency-Key": "k1"})
        statuses.append(answer.status_code)
        clerk.user_permissions.set(permissions.filter(codename__in=kept))
    assert statuses == [201, status]
    assert Refund.objects.count() == 1
