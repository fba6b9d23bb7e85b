"""PayPal through our engine: an approval, and a refund by the numbers of order and charge."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

import payments
from idempotency.webhooks.paypal import signed_text
from payments.attempts import closing
from payments.channels import configured
from payments.models import Attempt
from payments.providers import rsa
from payments.providers.paypal import HEADERS
from payments.reconciliation import reconcile
from payments.webhooks import intake
from tests.payments_settings import Rooms, changed
from tests.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)


class Suites(Rooms):
    currency = "USD"


@pytest.fixture
def suite(sandbox: Sandbox, settings: Any) -> Iterator[Group]:
    """An order of a project that takes PayPal alone."""
    account = sandbox.keys.paypal.settings | {"API_URL": f"{sandbox.url}/paypal", "WEBHOOK_ID": "unused"}
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Suites", PROVIDERS={"paypal": account})
    configured.forget()
    yield Group.objects.create(name="a suite")
    configured.forget()


def test_a_refund_finds_the_order_that_was_paid(suite: Group, sandbox: Sandbox) -> None:
    attempt = payments.start(suite, method="paypal")
    httpx.get(attempt.next_action_url, follow_redirects=True, trust_env=False).raise_for_status()
    sandbox.pay(attempt.out_trade_no)
    assert closing.query_attempt(attempt.pk).status == "succeeded"
    sandbox.faults(timeout_after_success=True)
    part = payments.refund(suite, amount_minor=200)
    sandbox.reset_faults()
    assert part.status == "uncertain"
    again = payments.refund(suite, amount_minor=200, refund_id=part.pk)
    assert [again.status, payments.refund(suite).status] == ["succeeded"] * 2
    assert sandbox.charges()[attempt.out_trade_no]["refunded_minor"] == 500
    assert payments.status(suite) == "refunded"


def test_an_approval_has_the_timer_take_the_money(suite: Group, sandbox: Sandbox) -> None:
    attempt = payments.start(suite, method="paypal")
    Attempt.objects.update(next_query_at=attempt.expires_at)
    sandbox.pay(attempt.out_trade_no)
    unit = {"invoice_id": attempt.out_trade_no, "custom_id": "payonce"}
    event = {"id": "WH-1", "event_type": "CHECKOUT.ORDER.APPROVED", "resource": {"purchase_units": [unit]}}
    body, at = json.dumps(event).encode(), f"{timezone.now():%Y-%m-%dT%H:%M:%SZ}"
    signed = signed_text(number="1", sent_at=at, webhook_id="unused", body=body)
    signature = rsa.sign(signed, sandbox.keys.paypal.key)
    headers = dict(zip(HEADERS, ("1", at, signature, "SHA256withRSA"), strict=False))
    for _ in range(2):
        intake.receive(account="paypal", headers=headers, body=body)
    reconcile.run_as_leader()
    assert payments.status(suite) == "succeeded"
