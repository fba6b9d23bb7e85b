"""A policy refund above the limit: filed on the desk, approved or declined there, once."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from payments.models import Anomaly, Attempt, AuditEntry, Refund
from payments.operations import actions, approval
from payments.operations.actions import NotDecidable, Operator
from tests.integration.payments.admin.test_desk import queue
from tests.integration.payments.conftest import fold, paid, refunded
from tests.payments_settings import changed
from tests.threads import at_once


@pytest.fixture
def held(attempt: Attempt, settings: Any) -> Anomaly:
    """Paid in an amount above the limit that was not asked for."""
    settings.PAYMENTS = changed(REFUNDS={"APPROVE_ABOVE": {"CNY": 2000}})
    fold(paid(attempt, amount_minor=2001))
    assert not Refund.objects.exists()
    return Anomaly.objects.get()


@pytest.fixture
def by() -> Operator:
    return Operator(user_id=User.objects.create_superuser("op").pk, reason="it is theirs")


def test_the_desk_leads_to_the_approval(admin_client: Client, held: Anomaly) -> None:
    [line] = queue(admin_client)
    assert "20.01 CNY" in line
    assert "it waits for your approval" in line
    address, act = f"/admin/payments/anomaly/{held.pk}/approve/", "Approve the refund"
    assert f"{address} {act}" in line
    assert "20.01 CNY at stake" in admin_client.get(address).content.decode()
    case_file = admin_client.get(f"/admin/payments/payment/{held.payment_id}/change/").content.decode()
    assert "the refund waits for approval." in case_file
    admin_client.post(address, {"reason": "it is theirs"})
    refund = Refund.objects.get()
    assert (refund.amount_minor, refund.anomaly_id, refund.status) == (2001, held.pk, "requested")
    assert "It is being refunded" in queue(admin_client)[0]
    assert AuditEntry.objects.get().message == (
        f"Approved refund {refund.out_refund_no} of 20.01 CNY. Reason: it is theirs. Result: queued."
    )
    fold(refunded(refund.attempt, 2001, refund.out_refund_no), source="refund")
    held.refresh_from_db()
    assert (queue(admin_client), held.resolution[:18]) == ([], "refunded 20.01 CNY")


def test_declined_nothing_goes_back(admin_client: Client, held: Anomaly) -> None:
    page = admin_client.get(f"/admin/payments/anomaly/{held.pk}/change/").content.decode()
    acts = re.findall(rf"/anomaly/{held.pk}/(approve|decline|resolve)/", page)
    assert acts == ["approve", "decline"]
    admin_client.post(f"/admin/payments/anomaly/{held.pk}/decline/", {"reason": "fraud, kept"})
    assert (queue(admin_client), Refund.objects.count()) == ([], 0)
    [entry] = AuditEntry.objects.all()
    assert entry.message.startswith("Declined the refund of 20.01 CNY. Reason: fraud, kept.")


def test_it_is_decided_once_and_never_by_resolving(held: Anomaly, by: Operator) -> None:
    with pytest.raises(NotDecidable, match="approve or decline"):
        actions.resolve(held, by=by)

    def decide(act: Callable[..., Any]) -> str:
        try:
            act(Anomaly.objects.get(), by=by)
        except NotDecidable:
            return ""
        return act.__name__

    acts = [approval.approve, approval.decline, approval.approve, approval.decline]
    done = [act for act in at_once(*[lambda act=act: decide(act) for act in acts]) if act]
    assert len(done) == 1
    assert Refund.objects.count() == done.count("approve")
    assert AuditEntry.objects.count() == 1
