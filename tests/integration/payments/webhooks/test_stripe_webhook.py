"""Stripe's events (docs/contract.md, 3); what all channels share is in test_webhooks.py."""

import json
import time
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from payments.models import Anomaly, Attempt, Notification, Refund
from payments.providers.base import RefundResult, RefundStatus
from payments.providers.stripe.client import StripeIntents
from payments.refunds import steps as refunds
from payments.sandbox import state
from payments.sandbox.stripe import documents as stripe
from payments.webhooks import intake as webhooks
from tests.integration.payments.conftest import (
    Letter,
    OpenAttempt,
    fold,
    letter,
    paid,
    payment_of,
    refund_asked,
    trade_of,
)
from tests.integration.payments.webhooks.test_webhooks import signed_letter
from tests.threads import at_once

pytestmark = pytest.mark.usefixtures("no_network")


def signed(event: dict[str, Any]) -> Letter:
    return signed_letter("stripe", json.dumps(event).encode())


def refund_letter(attempt: Attempt, amount_minor: int) -> Letter:
    """Genuine news that part of it went back, under a number that is its amount."""
    number = f"{amount_minor:032d}"
    made = {"refund_id": f"re_{number}", "amount_minor": amount_minor, "created_at": time.time()}
    numbers = {"out_trade_no": attempt.out_trade_no, "out_refund_no": number}
    with state.store().write() as store:
        kept = json.dumps({"metadata": numbers})
        store.execute("INSERT OR REPLACE INTO objects VALUES (?, ?)", [made["refund_id"], kept])
    notice = {"id": f"refunded-{amount_minor}", "event": "refunded", "trade": trade_of(attempt), "refund": made}
    headers, body = stripe.notification(notice)
    return Letter("stripe", body, headers)


def received(note: Letter) -> None:
    assert note.send().status_code == 200


@pytest.mark.parametrize("kind", ["refund.failed", "refund.updated"])
@pytest.mark.parametrize("order", ["in order", "failure first", "failure first, asked about between"])
def test_a_refund_that_comes_back_waits_for_a_person(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch, kind: str, order: str
) -> None:
    """Events come in any order, and none comes again once it is acknowledged."""
    attempt = open_attempt("stripe")
    received(letter(attempt))
    succeeded = refund_letter(attempt, 990)
    failed = json.loads(succeeded.body)
    failed["data"]["object"] |= {"status": "failed", "failure_reason": "expired_or_canceled_card"}
    number = failed["data"]["object"]["metadata"]["out_refund_no"]
    refund = refund_asked(attempt.payment_id, 990, refund_id=UUID(hex=number))
    Refund.objects.update(submitted_at=timezone.now())
    news = signed(failed | {"id": "evt_failed", "type": kind})
    if order == "in order":
        received(succeeded)
    received(news)
    if "asked" in order:
        said = RefundResult(status=RefundStatus.FAILED)
        monkeypatch.setattr(StripeIntents, "query_refund", lambda self, **_: said)
        assert refunds.submit_refund(refund.pk).status == "failed"
    received(succeeded)
    received(news)
    anomaly = Anomaly.objects.get(resolved_at__isnull=True)
    assert (anomaly.kind, anomaly.reference) == ("refund_failed", number)
    assert Notification.objects.get(notification_id="evt_failed").verdict == "anomaly"
    assert payment_of(attempt).refunded_minor == 990


def test_replaying_what_waits_for_its_payment_leaves_it_waiting(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    received(refund_letter(attempt, 990))
    row = Notification.objects.get()
    received(refund_letter(open_attempt("stripe"), 991))  # which waits for another one
    for _ in range(2):
        assert webhooks.replay(row.pk) == "duplicate"
        row.refresh_from_db()
        assert row.verdict == "held"
    received(letter(attempt))
    for _ in range(2):
        row.refresh_from_db()
        assert (row.verdict, payment_of(attempt).refunded_minor) == ("applied", 990)
        assert row.detail == "it came before its payment, and was applied after it"
        assert webhooks.replay(row.pk) == "duplicate"
    assert Notification.objects.filter(verdict="held").count() == 1


def test_a_payment_beside_a_replay_releases_what_waited(open_attempt: OpenAttempt) -> None:
    for amount_minor in range(990, 993):
        attempt = open_attempt("stripe")
        received(refund_letter(attempt, amount_minor))
        row = Notification.objects.get(out_trade_no=attempt.out_trade_no)
        at_once(partial(webhooks.replay, row.pk), partial(fold, paid(attempt), source="query"))
        row.refresh_from_db()
        assert (row.verdict, payment_of(attempt).refunded_minor) == ("applied", amount_minor)
