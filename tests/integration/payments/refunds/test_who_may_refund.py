"""Staff refund the payments of others by a permission, which a replay needs too."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from rest_framework.test import APIClient

from idempotency.protocol.recovery import Progress
from payments.api import refunding
from payments.attempts import submission
from payments.models import Payment, Refund
from shop.models import Order
from tests.integration.payments.conftest import fold, opened
from tests.integration.shop.provider import ScriptedProvider


@pytest.fixture
def clerk(transactional_db: None) -> User:
    return User.objects.create_user("clerk", is_staff=True)


def may(clerk: User, *permissions: str) -> None:
    clerk.user_permissions.set(
        Permission.objects.filter(codename__in=permissions, content_type__app_label="payments")
    )


def ask(clerk: User, payment: Payment) -> Any:
    api = APIClient()
    api.force_authenticate(User.objects.get(pk=clerk.pk))
    address, key = f"/api/v1/payments/{payment.id.hex}/refunds", {"Idempotency-Key": "k1"}
    return api.post(address, {"amount_minor": 90}, format="json", headers=key)


@pytest.mark.parametrize("owned", [True, False])
def test_who_may_refund_anothers_payment(
    new_order: Callable[[], Order], provider: ScriptedProvider, clerk: User, owned: bool
) -> None:
    attempt = opened(new_order(), owned=owned)
    submission.submit_attempt(attempt.pk)
    fold(provider.pay(attempt.out_trade_no))
    payment = Payment.objects.get()
    seen, both = ["view_payment"], ["view_payment", "add_refund"]
    for permissions, status, code, refunds in (
        ([], 404, "payment_not_found", 0),
        (seen, 403, "refund_not_allowed", 0),
        (both, 201, "", 1),
        ([], 404, "payment_not_found", 1),
        (seen, 403, "refund_not_allowed", 1),
    ):
        may(clerk, *permissions)
        answer = ask(clerk, payment)
        assert (answer.status_code, answer.json().get("code", "")) == (status, code)
        assert Refund.objects.count() == refunds


@pytest.mark.usefixtures("transactional_db")
def test_a_refund_is_reserved_and_withdrawn_where_the_ledger_is_in_another_database(
    new_order: Callable[[], Order], provider: ScriptedProvider
) -> None:
    """No transaction of the step's is open in the database of payments."""
    attempt = opened(new_order())
    submission.submit_attempt(attempt.pk)
    fold(provider.pay(attempt.out_trade_no))
    data = {"payment": attempt.payment_id.hex, "amount_minor": 90, "reason": ""}
    asked = Progress(data=data, key_digest="k1", resumed=False)
    for _ in range(2):
        reserved = refunding.reserve(asked)
    assert Payment.objects.get().reserved_minor == 90
    refunding.withdraw(replace(asked, data=reserved.data))
    assert (Payment.objects.get().reserved_minor, Refund.objects.get().status) == (0, "failed")
