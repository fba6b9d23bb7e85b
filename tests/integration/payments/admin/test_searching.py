"""Searches by one of our numbers as a provider's own pages show it."""

from datetime import date
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client

from payments.channels import configured
from payments.models import BillComparison, Difference, Refund
from tests.integration.payments.admin.test_payment_admin import listed
from tests.integration.payments.conftest import OpenAttempt, fold, letter, refund_asked, refunded


def digits(ours: UUID) -> str:
    """The number as a provider that takes digits alone has it."""
    return f"{ours.int:039}"


@pytest.fixture
def refund(open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch) -> Refund:
    """Of 5.00 from a payment by a provider that takes digits; with a notification and two lines of a bill."""
    attempt = open_attempt()
    letter(attempt, notification_id="n-paid").send()
    provider: Any = configured.current()["wechat"]
    monkeypatch.setattr(provider, "read_number", lambda theirs: f"{int(theirs):032x}", raising=False)
    made = refund_asked(attempt.payment_id)
    fold(refunded(attempt, 500, made.out_refund_no))
    bill = BillComparison.objects.create(
        channel="wechat", merchant="m", day=date(2026, 1, 2), currency="CNY", lines=2, theirs_minor=0, ours_minor=0
    )
    line = {"comparison": bill, "kind": "missing_here", "theirs_minor": 500, "currency": "CNY"}
    Difference.objects.create(**line, moved="paid", provider_txn_id="t1", out_trade_no=attempt.out_trade_no)
    Difference.objects.create(**line, moved="refunded", provider_txn_id="t2", out_refund_no=made.out_refund_no)
    return made


def written(ours: UUID) -> list[str]:
    return [ours.hex, str(ours).upper(), digits(ours)]


def test_each_list_knows_our_numbers_in_every_form(admin_client: Client, refund: Refund) -> None:
    def counts(number: UUID, *models: str) -> list[list[int]]:
        return [[len(listed(admin_client, model, q=q)) for model in models] for q in written(number)]

    trade = ("payment", "attempt", "observation", "notification", "journalentry", "difference")
    assert counts(refund.attempt_id, *trade) == [[1, 1, 2, 1, 2, 1]] * 3
    assert counts(refund.pk, "payment", "refund", "observation", "difference") == [[1, 1, 1, 1]] * 3
    assert counts(refund.payment_id, "payment", "attempt", "refund", "paymentevent") == [[1, 1, 1, 2]] * 3


def test_what_only_reads_as_a_number_of_ours_is_searched_for_as_it_stands(
    admin_client: Client, refund: Refund
) -> None:
    """A customer's name and the provider's number have digits alone, so `read_number` reads them."""
    User.objects.filter(username="ann").update(username="42")
    for term in ("42", refund.attempt.observations.get(kind="paid").provider_txn_id):
        assert len(listed(admin_client, "payment", q=term)) == 1
