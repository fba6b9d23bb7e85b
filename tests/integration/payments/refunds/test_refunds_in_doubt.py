"""Refunds in doubt: a refused repeat says nothing about the first request."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from payments.attempts import closing, submission
from payments.errors import ChannelOff, OutcomeUnknown, ProviderRejected, RefundExceedsPaid
from payments.models import Anomaly, Attempt, Payment, Refund
from payments.providers.base import RefundResult, RefundStatus
from payments.refunds import steps as refunds
from payments.settlement import backoff
from shop.models import Order
from tests.integration.payments.conftest import opened, refund_asked, refunded
from tests.integration.shop.provider import ScriptedProvider
from tests.threads import at_once, in_background

REFUSED = ProviderRejected("BUSY", "under concurrency")


@pytest.fixture
def refund(paid_payment: Payment) -> Refund:
    return refund_asked(paid_payment.id, 500)


@pytest.fixture
def answers(provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what the provider answers to requests from now on, one after the other."""

    def set_them(*given: RefundResult | BaseException) -> None:
        left = iter(given)

        def answer(**arguments: Any) -> RefundResult:
            said = next(left)
            if isinstance(said, BaseException):
                raise said
            return said

        monkeypatch.setattr(provider, "refund", answer)

    return set_them


def reserved(payment: Payment) -> int:
    payment.refresh_from_db()
    return payment.reserved_minor


@pytest.mark.parametrize("first", [OutcomeUnknown("timed out"), KeyboardInterrupt()], ids=["no answer", "killed"])
def test_a_refusal_is_believed_once_no_earlier_request_can_be_under_way(
    paid_payment: Payment, refund: Refund, answers: Callable[..., None], first: BaseException
) -> None:
    answers(first, REFUSED, REFUSED)
    if isinstance(first, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            refunds.submit_refund(refund.id)
    else:
        assert refunds.submit_refund(refund.id).status == "uncertain"
    assert refunds.submit_refund(refund.id).status == "uncertain"
    assert reserved(paid_payment) == 500
    # the refusal in between had an answer: the doubt is as old as the request that had none
    Refund.objects.update(submitted_at=F("submitted_at") - backoff.IN_DOUBT - timedelta(seconds=1))
    assert refunds.submit_refund(refund.id).status == "failed"
    assert reserved(paid_payment) == 0


def test_two_processes_make_one_first_request(
    paid_payment: Payment, provider: ScriptedProvider, refund: Refund, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_have_read, requests = threading.Barrier(2, timeout=30), []
    charge_of = refunds.charge_of

    def read(one: Refund) -> Any:
        charge = charge_of(one)
        both_have_read.wait()
        return charge

    def answer(**arguments: Any) -> RefundResult:
        requests.append(arguments["out_refund_no"])
        return RefundResult(status=RefundStatus.PROCESSING)

    monkeypatch.setattr(refunds, "charge_of", read)
    monkeypatch.setattr(provider, "refund", answer)
    at_once(*[lambda: refunds.submit_refund(refund.id)] * 2)
    refund.refresh_from_db()
    assert (requests, refund.status) == ([refund.out_refund_no], "processing")


@pytest.mark.parametrize("of_the_first", [True, False])
def test_the_refusal_of_one_of_two_requests_under_way_ends_nothing(
    paid_payment: Payment,
    provider: ScriptedProvider,
    refund: Refund,
    monkeypatch: pytest.MonkeyPatch,
    of_the_first: bool,
) -> None:
    inside, go_on, requests = threading.Event(), threading.Event(), []

    def answer(**arguments: Any) -> RefundResult:
        requests.append(1)
        is_first = len(requests) == 1
        if is_first:
            inside.set()
            assert go_on.wait(30)
        if is_first is of_the_first:
            raise REFUSED
        return RefundResult(status=RefundStatus.PROCESSING)

    monkeypatch.setattr(provider, "refund", answer)
    slow = in_background(lambda: refunds.submit_refund(refund.id))
    assert inside.wait(30)
    refunds.submit_refund(refund.id)
    go_on.set()
    slow.result()
    refund.refresh_from_db()
    assert (len(requests), refund.status, reserved(paid_payment)) == (2, "processing", 500)
    with transaction.atomic(), pytest.raises(RefundExceedsPaid):
        refunds.request_refund(payment_id=paid_payment.id, amount_minor=1500, reason="")


def test_another_merchant_is_not_asked_about_what_is_open(
    paid_payment: Payment, refund: Refund, provider: ScriptedProvider, new_order: Callable[[], Order]
) -> None:
    """Another merchant never saw our numbers: its answer would end them."""
    doubted = opened(new_order())
    provider.fails(OutcomeUnknown("timed out"), "create", "refund")
    submission.submit_attempt(doubted.pk)
    refunds.submit_refund(refund.pk)
    for rows in (Attempt.objects.filter(pk=doubted.pk), Refund.objects.all()):
        rows.update(submitted_at=F("submitted_at") - backoff.IN_DOUBT - timedelta(seconds=1))
    provider.merchant, provider.calls = "1900009999", []
    provider.fails(ProviderRejected("RESOURCE_NOT_EXISTS", "no such trade"), "refund")
    for call in (
        partial(refunds.submit_refund, refund.pk),
        partial(submission.submit_attempt, doubted.pk),
        partial(closing.close_attempt, doubted.pk),
    ):
        with suppress(ChannelOff):
            call()
    refund.refresh_from_db()
    doubted.refresh_from_db()
    assert (refund.status, reserved(paid_payment), doubted.status) == ("uncertain", 500, "uncertain")
    assert (provider.calls, Anomaly.objects.count()) == ([], 0)


def test_the_success_of_another_amount_is_no_word_about_ours(
    paid_payment: Payment,
    refund: Refund,
    provider: ScriptedProvider,
    answers: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(OutcomeUnknown("timed out"))
    refunds.submit_refund(refund.id)
    for minor, status, kept_minor in ((1990, "uncertain", 500), (500, "succeeded", 0)):
        made = RefundResult(
            status=RefundStatus.SUCCEEDED, facts=(refunded(refund.attempt, minor, refund.out_refund_no),)
        )
        monkeypatch.setattr(provider, "query_refund", lambda made=made, **_: made)
        assert refunds.submit_refund(refund.id).status == status
        assert reserved(paid_payment) == kept_minor
