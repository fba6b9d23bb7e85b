"""A refund at PayPal through our engine: the order's number is the provider's, and the charge has another one."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Group

import payments
from payments.attempts import closing
from payments.channels import configured
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
