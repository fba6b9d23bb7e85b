"""Disputes: one anomaly each, in whatever order they are notified, and books that agree."""

import itertools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from procrastinate.contrib.django.models import ProcrastinateJob

from payments import tasks
from payments.channels import configured
from payments.errors import RefundExceedsPaid, SignatureInvalid
from payments.models import Anomaly, Attempt, Notification, Observation
from payments.providers.base import FactKind
from payments.settlement import read
from payments.settlement.settle import settle
from payments.webhooks import intake
from tests.integration.payments.conftest import (
    Letter,
    OpenAttempt,
    books,
    fold,
    letter,
    number_of,
    order_of,
    paid,
    payment_of,
    refund_asked,
)
from tests.integration.payments.webhooks.test_webhooks import signed_letter

pytestmark = pytest.mark.usefixtures("no_network")

OPENED_AT = 1_795_000_000
DUE = OPENED_AT + 7 * 86_400


def moved(sign: int, at: int, **changed: Any) -> dict[str, Any]:
    return {"id": f"txn_{at}", "amount": sign * 1990, "currency": "cny", "fee": 1500, "created": at, **changed}


TAKEN, RETURNED = moved(-1, OPENED_AT), moved(1, OPENED_AT + 9)


def event(attempt: Attempt, kind: str, status: str, at: int, *entries: dict[str, Any], **changed: Any) -> Letter:
    """Signed as Stripe does, with the members of its "Dispute object" (read 2026-11)."""
    dispute = {
        "id": "du_1",
        "object": "dispute",
        "amount": 1990,
        "balance_transactions": entries,
        "currency": "cny",
        "evidence_details": {"due_by": DUE},
        "payment_intent": number_of(attempt),
        "reason": "fraudulent",
        "status": status,
        **changed,
    }
    event = {"id": f"evt_{kind}_{at}_{dispute['id']}", "object": "event", "created": at, "livemode": False}
    event |= {"type": f"charge.dispute.{kind}", "data": {"object": dispute}}
    return signed_letter("stripe", json.dumps(event).encode())


def life(attempt: Attempt) -> list[Letter]:
    return [
        event(attempt, "created", "needs_response", OPENED_AT),
        event(attempt, "funds_withdrawn", "needs_response", OPENED_AT, TAKEN),
        event(attempt, "closed", "won", OPENED_AT + 9, TAKEN),
        event(attempt, "funds_reinstated", "won", OPENED_AT + 9, TAKEN, RETURNED),
    ]


def received(*letters: Letter) -> None:
    assert [one.send().status_code for one in letters] == [200] * len(letters)


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))][::5], ids=str)
def test_a_dispute_in_any_order_is_one_anomaly_and_booked_once(
    order: list[int], open_attempt: OpenAttempt
) -> None:
    attempt = open_attempt("stripe")
    received(letter(attempt))
    events = life(attempt)
    received(*(events[one] for one in order), *events)
    filed = Anomaly.objects.get()
    assert (filed.kind, filed.payment_id, filed.reference) == ("disputed", attempt.payment_id, "stripe/du_1")
    assert filed.detail == {
        **{"out_trade_no": attempt.out_trade_no, "merchant": "stripe", "charged_as": number_of(attempt)},
        **{"status": "won", "reason": "fraudulent", "respond_by": "", "currency": "CNY"},
        **dict.fromkeys(("amount_minor", "claimed_minor", "taken_minor", "returned_minor"), 1990),
        "stated_at": datetime.fromtimestamp(OPENED_AT + 9, UTC).isoformat(),
    }
    assert books() == {"provider": 1990, "orders": -1990}
    assert (payment_of(attempt).status, order_of(attempt).status) == ("succeeded", "paid")
    assert set(Notification.objects.values_list("out_trade_no", flat=True)) == {attempt.out_trade_no}


def test_what_is_lost_stays_in_the_books_and_on_the_case_file(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    received(letter(attempt), *life(attempt)[:2])
    filed = Anomaly.objects.get()
    assert filed.detail["respond_by"] == datetime.fromtimestamp(DUE, UTC).isoformat()
    received(event(attempt, "closed", "lost", OPENED_AT + 5, TAKEN))
    assert Anomaly.objects.get().detail["respond_by"] == ""
    assert books() == {"orders": -1990, "disputed": 1990}
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    page = browser.get(f"/admin/payments/payment/{attempt.payment_id}/change/").content.decode()
    assert "Disputed by Stripe" in page
    assert "lost (fraudulent), 19.90 CNY is taken back." in page
    sums = dict(re.findall(r"<dt>(?:[−=] )?([\w ]+)</dt><dd>(?:<strong>)?([^<]+)", page))
    assert [sums[name] for name in ("received", "refunded", "taken back", "kept")] == [
        *("19.90 CNY", "0.00 CNY", "19.90 CNY", "0.00 CNY"),
    ]


def test_only_what_no_dispute_took_can_be_refunded(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    part = moved(-1, OPENED_AT, amount=-990)
    received(letter(attempt), event(attempt, "funds_withdrawn", "needs_response", OPENED_AT, part))
    assert (payment_of(attempt).refundable_minor, payment_of(attempt).disputed_minor) == (1000, 990)
    with pytest.raises(RefundExceedsPaid, match=r"Only 10\.00 CNY can still be refunded"):
        refund_asked(attempt.payment_id, 1001)
    assert refund_asked(attempt.payment_id, 1000).amount_minor == 1000
    with pytest.raises(RefundExceedsPaid, match="Nothing is left to refund"):
        refund_asked(attempt.payment_id, 1)
    received(event(attempt, "funds_reinstated", "won", OPENED_AT + 9, part, moved(1, OPENED_AT + 9, amount=990)))
    assert (payment_of(attempt).refundable_minor, payment_of(attempt).reserved_minor) == (990, 1000)
    assert refund_asked(attempt.payment_id, 990).amount_minor == 990
    received(*life(attempt)[:2], event(attempt, "created", "lost", OPENED_AT, part, id="du_2"))
    assert payment_of(attempt).refundable_minor == 0  # and not below
    assert Anomaly.objects.filter(kind="disputed", payment=attempt.payment_id).count() == 2


def test_a_dispute_of_money_that_was_not_credited_takes_nothing_from_what_was(open_attempt: OpenAttempt) -> None:
    second = open_attempt("stripe")
    fold(paid(open_attempt("wechat", order_of(second))), paid(second))
    received(*life(second)[:2])
    assert (Anomaly.objects.filter(kind="disputed").count(), payment_of(second).refundable_minor) == (1, 1990)


def test_a_resolved_one_is_open_again_only_for_news(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    received(letter(attempt), *life(attempt)[:2])
    Anomaly.objects.update(resolved_at=datetime.now(UTC), resolution="answered")
    received(event(attempt, "updated", "needs_response", OPENED_AT + 2, TAKEN))
    filed = Anomaly.objects.get()
    assert (filed.resolution, filed.detail["stated_at"][-8:]) == ("answered", "42+00:00")
    received(event(attempt, "closed", "lost", OPENED_AT + 5, TAKEN))
    assert Anomaly.objects.get(resolved_at__isnull=True).detail["status"] == "lost"


def test_another_system_s_dispute_files_nothing_and_is_let_go(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = open_attempt("stripe")
    received(letter(attempt), event(attempt, "created", "needs_response", OPENED_AT, TAKEN, payment_intent="pi_x"))
    theirs = Notification.objects.get(event_type="charge.dispute.created")
    assert theirs.verdict == "held"
    (job,) = jobs_about(theirs)
    tasks.replay_early(**job)
    assert len(jobs_about(theirs)) == 2
    monkeypatch.setattr(intake, "EARLY", timedelta())
    tasks.replay_early(**job)
    theirs.refresh_from_db()
    assert (theirs.verdict, len(jobs_about(theirs))) == ("ignored", 2)
    assert (Anomaly.objects.count(), Observation.objects.count()) == (0, 1)


def jobs_about(early: Notification) -> list[dict[str, str]]:
    """List the queue's jobs about it; its table is not emptied between tests."""
    jobs = ProcrastinateJob.objects.filter(task_name="payments.replay_early", args__notification_pk=early.pk)
    return list(jobs.values_list("args", flat=True))


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
def test_disputes_that_came_before_their_payment_wait_for_it(
    order: tuple[int, ...], open_attempt: OpenAttempt
) -> None:
    attempt = open_attempt("stripe")
    events = life(attempt)
    received(*(events[one] for one in order), *(events[one] for one in order))
    early = list(Notification.objects.order_by("pk"))
    assert {(one.verdict, one.out_trade_no) for one in early} == {("held", "")}
    (first,) = jobs_about(early[0])
    tasks.replay_early(**first)  # nothing new
    received(letter(attempt))
    assert (Anomaly.objects.count(), books()["orders"]) == (0, -1990)
    for one in early:
        for job in jobs_about(one):
            tasks.replay_early(**job)
            tasks.replay_early(**job)  # as of a killed worker
        one.refresh_from_db()
        assert (one.verdict in {"anomaly", "duplicate"}, one.out_trade_no) == (True, attempt.out_trade_no)
    assert Anomaly.objects.get().detail["taken_minor"] == 1990
    assert books()["disputed"] == 1990


def test_an_early_dispute_that_fails_is_an_anomaly_until_it_is_read(
    open_attempt: OpenAttempt, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = open_attempt("stripe")
    received(event(attempt, "created", "needs_response", OPENED_AT))
    (job,) = jobs_about(Notification.objects.get())
    received(letter(attempt))
    with monkeypatch.context() as patch:
        patch.setitem(settings.PAYMENTS["PROVIDERS"]["stripe"], "WEBHOOK_SECRET", "whsec_another")
        configured.forget()
        for _ in range(2):
            with pytest.raises(SignatureInvalid):
                tasks.replay_early(**job)
    assert "does not verify" in Anomaly.objects.get(kind="notification_failed", resolved_at=None).detail["error"]
    configured.forget()
    tasks.replay_early(**job)
    assert Anomaly.objects.get(resolved_at=None).kind == "disputed"


def test_an_early_dispute_that_a_person_took_out_of_quarantine_waits_too(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    received(*(event(attempt, "created", "needs_response", OPENED_AT, amount=amount) for amount in (990, 1990)))
    changed = Notification.objects.get(verdict="quarantined")
    assert (intake.replay(changed.pk), intake.replay(changed.pk)) == ("held", "held")
    (job,) = jobs_about(changed)
    received(letter(attempt))
    tasks.replay_early(**job)
    assert Anomaly.objects.get(kind="disputed").detail["claimed_minor"] == 1990


def test_one_that_the_version_before_ignored_waits_once_a_person_has_it_processed(
    open_attempt: OpenAttempt,
) -> None:
    received(event(open_attempt("stripe"), "created", "needs_response", OPENED_AT))
    Notification.objects.update(verdict="ignored")
    assert intake.replay(Notification.objects.get().pk) == Notification.objects.get().verdict == "held"
    assert len(jobs_about(Notification.objects.get())) == 2


def test_a_reversal_that_names_no_dispute_is_an_anomaly_of_its_own(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    fold(paid(attempt))
    took = paid(
        attempt, kind=FactKind.TAKEN, provider_txn_id="4R", paid_txn_id=number_of(attempt), out_trade_no=""
    )
    for _ in range(2):
        settle(*read.numbered([took]), source="notification")
    filed = Anomaly.objects.get()
    assert (filed.reference, filed.detail["amount_minor"]) == (f"{attempt.merchant}/4R", 1990)
    back = replace(took, kind=FactKind.RETURNED, provider_txn_id="5R", amount_minor=990)
    for named, disputed_minor in ((number_of(attempt), 1000), ("4R", 10)):  # the charge, or what took it back
        (found,) = read.numbered([replace(back, provider_txn_id=f"5R{named}", paid_txn_id=named)])
        settle(found, source="bill")
        assert payment_of(attempt).disputed_minor == books()["disputed"] == disputed_minor
    Anomaly.objects.exclude(pk=filed.pk).update(kind="seen")
    settle(*read.numbered([replace(took, amount_minor=5)]), source="bill")
    assert list(Anomaly.objects.exclude(kind="seen").values_list("kind", flat=True)) == [
        "content_changed",
        "disputed",
    ]
    assert books()["disputed"] == 10
