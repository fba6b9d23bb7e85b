"""The case file: sentences, sums that add up, a history that only grows, an export."""

import re
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from payments.admin.case import history, records
from payments.attempts import closing, submission
from payments.errors import OutcomeUnknown
from payments.models import Attempt, Notification, Payment, PaymentEvent, ProviderCall, Refund
from payments.settlement.state import BY_HAND
from tests.integration.payments.admin.test_payment_admin import in_this_order
from tests.integration.payments.conftest import (
    OpenAttempt,
    fold,
    gone_back_whole,
    letter,
    opened,
    order_of,
    paid,
    payment_of,
    recorded_by_hand,
    refund_asked,
    refunded,
)
from tests.integration.shop.provider import ScriptedProvider
from tests.running import until


def case(client: Client, payment: Payment, more: str = "change/") -> Any:
    answer = client.get(f"/admin/payments/payment/{payment.pk}/{more}")
    assert answer.status_code == 200
    return answer


def give_back(payment: Payment) -> None:
    """The provider reports the policy's refund."""
    refund = Refund.objects.get(payment=payment)
    fold(refunded(refund.attempt, refund.amount_minor, refund.out_refund_no), source="refund")


def texts(payment: Payment) -> list[tuple[Any, ...]]:
    found = history.moments(records.read(payment), currency=payment.currency)
    return [(moment.at, moment.what, moment.who, moment.note) for moment in found]


@pytest.fixture
def twice(open_attempt: OpenAttempt) -> Payment:
    """Paid by WeChat Pay, then by Alipay, whose money is on its way back."""
    attempt = open_attempt()
    for one in (attempt, open_attempt("alipay", order_of(attempt))):
        assert letter(one).send().status_code in {200, 204}
    return payment_of(attempt)


def test_a_payment_that_was_charged_twice_says_so_first(admin_client: Client, twice: Payment) -> None:
    charged = r"Charged twice: 19\.90 CNY by Alipay at [\d:]+ UTC,"
    assert re.search(rf"{charged} the refund is on its way\.", case(admin_client, twice).text)
    give_back(twice)
    shown = case(admin_client, twice).text
    assert re.search(rf"{charged} refunded \d+\.\d s later\.", shown)
    assert sums(shown) == ["39.80", "19.90", "19.90", "0.00"]
    wanted = ["notification TRADE_SUCCESS", "debit Alipay (", "anomaly: paid twice", "policy refund of"]
    assert in_this_order(shown.partition("payments-history")[2], wanted), "what is filed of money comes after it"
    for part in (twice.order_id.hex[-6:].upper(), "<dd>ann</dd>", "Alipay (page), WeChat Pay (native)"):
        assert part in shown


def test_the_export_is_what_the_page_shows(client: Client, admin_client: Client, twice: Payment) -> None:
    exported = case(admin_client, twice, "case.json").json()
    assert (exported["payment"], exported["status"], exported["customer"]) == (twice.pk.hex, "succeeded", "ann")
    assert exported["sums"] == [
        {"received": "39.80 CNY", "refunded": "0.00 CNY", "kept": "39.80 CNY", "on_its_way_back": "19.90 CNY"}
    ]
    assert [one["what"] for one in exported["history"]] == [what for _, what, _, _ in texts(twice)]
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    assert client.get(f"/admin/payments/payment/{twice.pk}/case.json").status_code == 403


@pytest.mark.usefixtures("zoned", "channels")
def test_each_call_under_a_key_is_in_the_history(admin_client: Client, client: Client, new_order: Any) -> None:
    order = new_order()
    client.force_login(User.objects.get(username="ann"))
    address, known = f"/api/v1/orders/{order.id}/cancel", {"HTTP_IDEMPOTENCY_KEY": uuid4().hex}
    payment = payment_of(opened(order))
    Attempt.objects.update(status="closed")  # nothing is asked of its provider
    for _ in range(2):
        assert client.post(address, content_type="application/json", **known).status_code == 200

    def calls() -> list[str]:
        exported = case(admin_client, payment, "case.json").json()["history"]
        return [f"{one['who']} {one['what']}" for one in exported if "POST" in one["what"]]

    until(lambda: len(calls()) == 2)
    history = case(admin_client, payment, "case.json").json()["history"]
    assert {one["at"][-6:] for one in history} == {"+00:00"}
    assert [re.sub(r"\d+", "N", call) for call in calls()] == [
        "ann (user N) POST /api/vN/orders/{order_id}/cancel: done",
        "ann (user N) POST /api/vN/orders/{order_id}/cancel: got the first answer again",
    ]


def test_each_call_to_a_provider_is_in_the_history(
    admin_client: Client, attempt: Attempt, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission.submit_attempt(attempt.pk)
    closing.query_attempt(attempt.pk)

    def refuses(**_: Any) -> Any:
        raise OutcomeUnknown("no answer in time")

    monkeypatch.setattr(provider, "query", refuses)
    with pytest.raises(OutcomeUnknown):
        closing.query_attempt(attempt.pk)
    exported = case(admin_client, payment_of(attempt), "case.json").json()["history"]
    calls = [(one["who"], one["what"]) for one in exported if "asked the provider" in one["what"]]
    assert calls == [
        ("WeChat Pay", "asked the provider to open: opened"),
        ("WeChat Pay", "asked the provider about the payment: pending"),
        ("WeChat Pay", "asked the provider about the payment: OutcomeUnknown: no answer in time"),
    ]
    assert ProviderCall.objects.filter(failed=True).count() == 1


def test_the_history_only_grows(twice: Payment) -> None:
    seen = texts(twice)

    def grew() -> bool:
        nonlocal seen
        before, seen = seen, texts(twice)
        return all(moment in seen for moment in before) and len(seen) >= len(before)

    Refund.objects.filter(payment=twice).update(status="uncertain", message="NOT_ENOUGH", query_count=3)
    assert grew()
    give_back(twice)
    assert grew()
    Notification.objects.update(verdict="duplicate", attempts=2, processed_at=timezone.now())
    PaymentEvent.objects.update(attempts=3)
    assert grew()
    fold(paid(twice.attempts.last(), amount_minor=7), source="query")
    assert grew()
    assert "anomaly: reported again with other content" in {what for _, what, *_ in seen}


def sums(shown: str) -> list[str]:
    """Return what was received, refunded, kept, and is on its way back."""
    return re.findall(r"<dd>(?:<strong>)?([-\d.]+) CNY", shown)


def test_a_refund_counts_wherever_it_was_made_and_with_the_sum_that_its_provider_reports(
    admin_client: Client, open_attempt: OpenAttempt
) -> None:
    attempt = open_attempt()
    letter(attempt).send()
    payment = payment_of(attempt)
    number = refund_asked(payment.pk, 990).out_refund_no
    shown = case(admin_client, payment).text
    assert re.search(r"On its way back: 9\.90 CNY by WeChat Pay since [\d:]+ UTC\.", shown)
    fold(refunded(attempt, 500, "portal-1"), source="bill")
    shown = case(admin_client, payment).text
    assert re.search(r"Refunded: 5\.00 CNY by WeChat Pay at [\d:]+ UTC\.", shown)
    assert sums(shown) == ["19.90", "5.00", "14.90", "9.90"]
    fold(replace(refunded(attempt, 990, number), provider_txn_id=number), source=BY_HAND)
    fold(refunded(attempt, 600, number), source="query")
    assert sums(case(admin_client, payment).text) == ["19.90", "11.00", "8.90", "0.00"]


def test_money_that_two_facts_report_is_summed_up_once(admin_client: Client, open_attempt: OpenAttempt) -> None:
    by_hand, whole = recorded_by_hand(open_attempt()), gone_back_whole(open_attempt("alipay"))
    for attempt, refunded_and_kept in ((by_hand, ["0.00", "19.90"]), (whole, ["19.90", "0.00"])):
        shown = case(admin_client, payment_of(attempt)).text
        assert sums(shown) == ["19.90", *refunded_and_kept, "0.00"]
        assert [alarm for alarm in ("not refunded", "NOT CREDITED") if alarm in shown] == []
