"""Alipay's notice of a refund that is faster than the answer to the call that asked for it, down to our tables."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from payments.attempts import opening as attempts
from payments.attempts import submission
from payments.channels import configured
from payments.models import Anomaly, Attempt, Observation, Payment, Refund
from payments.providers.base import RefundResult
from payments.refunds import steps as refunds
from shop.models import Order, Product
from shop.orders import placing as orders
from tests.integration.payments.providers.conftest import Listener, opened
from tests.payments_settings import changed
from tests.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alipay(sandbox: Sandbox, settings: Any) -> Iterator[Any]:
    settings.PAYMENTS = changed(PROVIDERS={"alipay": sandbox.channels()["alipay"]})
    configured.forget()
    provider: Any = configured.current()["alipay"]
    yield provider
    configured.forget()


def deliver(listener: Listener) -> None:
    """The next notification reaches us, and a copy of it too."""
    _, body = listener.next()
    for _ in range(2):
        answer = Client().generic(
            "POST", "/webhooks/alipay", body, content_type="application/x-www-form-urlencoded"
        )
        assert answer.content == b"success"


@pytest.fixture
def paid(transactional_db: None, alipay: Any, sandbox: Sandbox, listener: Listener) -> Payment:
    """An order of 1990 fen, paid by Alipay."""
    user = User.objects.create_user("ann", password="ann")
    Product.objects.create(sku="mug", name="Mug", price_minor=1990, stock=100)
    with transaction.atomic():
        order = orders.create_order(user_id=user.pk, quantities={"mug": 1})
        attempt: Attempt = attempts.open_attempt(
            order_id=order.id,
            owner_id=user.pk,
            amount_minor=1990,
            currency="CNY",
            channel="alipay",
            description="Mug",
            expires_at=timezone.now() + timedelta(minutes=30),
        )
    submission.submit_attempt(attempt.pk)
    opened(alipay, attempt.out_trade_no, notify_url=listener.url)
    sandbox.pay(attempt.out_trade_no)
    deliver(listener)
    payment = Payment.objects.get(pk=attempt.payment_id)
    assert payment.status == "succeeded"
    return payment


def requested(payment: Payment, amount_minor: int) -> Refund:
    with transaction.atomic():
        return refunds.request_refund(payment_id=payment.pk, amount_minor=amount_minor, reason="")


def state_of(payment: Payment) -> tuple[str, int, int, int]:
    payment.refresh_from_db()
    return payment.status, payment.paid_minor, payment.refunded_minor, payment.reserved_minor


@pytest.fixture
def before_the_answer(alipay: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Have something happen between the provider's doing and our hearing of it."""

    def install(happens: Callable[[], None]) -> None:
        original = alipay.refund

        def refund(**arguments: Any) -> RefundResult:
            result: RefundResult = original(**arguments)
            happens()
            return result

        monkeypatch.setattr(alipay, "refund", refund)

    return install


@pytest.mark.parametrize(("amount", "status"), [(990, "partially_refunded"), (1990, "refunded")])
def test_a_notice_within_the_call(
    paid: Payment,
    listener: Listener,
    sandbox: Sandbox,
    before_the_answer: Callable[[Callable[[], None]], None],
    amount: int,
    status: str,
) -> None:
    seen: list[tuple[str, int, int, int]] = []

    def notice_comes() -> None:
        deliver(listener)
        seen.append(state_of(paid))

    before_the_answer(notice_comes)
    assert refunds.submit_refund(requested(paid, amount).pk).status == "succeeded"
    assert seen == [("succeeded", 1990, 0, amount)]  # the notice alone moved nothing
    assert state_of(paid) == (status, 1990, amount, 0)
    assert Observation.objects.filter(attempt__payment=paid).count() == 2
    assert not Anomaly.objects.exists()
    (charge,) = [one for one in sandbox.charges().values() if one["out_trade_no"] == number_of(paid)]
    assert charge["refunded_minor"] == amount


def number_of(payment: Payment) -> str:
    number: str = payment.attempts.get().out_trade_no
    return number


def test_a_notice_after_the_answer_was_lost(paid: Payment, listener: Listener, sandbox: Sandbox) -> None:
    asked = requested(paid, 1990)
    sandbox.faults(timeout_after_success=1)
    assert refunds.submit_refund(asked.pk).status == "uncertain"
    deliver(listener)  # TRADE_CLOSED, which must not read as closed unpaid
    assert state_of(paid) == ("succeeded", 1990, 0, 1990)
    assert Order.objects.get(pk=paid.order_id).status == "paid"
    assert refunds.submit_refund(asked.pk).status == "succeeded"
    assert state_of(paid) == ("refunded", 1990, 1990, 0)
    assert Order.objects.get(pk=paid.order_id).status == "refunded"
    assert sandbox.charges()[number_of(paid)]["refunded_minor"] == 1990
    assert not Anomaly.objects.exists()
