"""Approved trades: captured once, only while the order waits, and never closed in doubt."""

from datetime import timedelta
from threading import Event

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from payments.attempts import closing, submission
from payments.errors import OutcomeUnknown, ProviderUnavailable
from payments.models import Attempt, ProviderCall
from payments.providers.base import TradeStatus
from payments.reconciliation import reconcile
from payments.settlement.backoff import IN_DOUBT
from tests.integration.payments.conftest import fold, opened, order_of
from tests.integration.shop.provider import ScriptedProvider
from tests.threads import at_once


@pytest.fixture
def approved(attempt: Attempt, provider: ScriptedProvider) -> Attempt:
    submission.submit_attempt(attempt.pk)
    provider.approve(attempt.out_trade_no)
    return attempt


def called(provider: ScriptedProvider) -> list[str]:
    return [method for method, _ in provider.calls]


def state_of(attempt: Attempt) -> tuple[str, int]:
    attempt.refresh_from_db()
    attempt.payment.refresh_from_db()
    return attempt.status, attempt.payment.paid_minor


def test_what_is_approved_is_captured_when_asked_about(approved: Attempt, provider: ScriptedProvider) -> None:
    for _ in range(2):
        assert closing.query_attempt(approved.pk).status == "succeeded"
    assert (called(provider), state_of(approved)) == (["create", "query", "capture"], ("succeeded", 1990))
    assert [*ProviderCall.objects.values_list("method", "answer")][-1] == ("capture", "paid")


def test_many_who_ask_at_once_credit_once(approved: Attempt, provider: ScriptedProvider) -> None:
    at_once(*[lambda: closing.query_attempt(approved.pk)] * 4)
    assert state_of(approved) == ("succeeded", 1990)


def test_two_at_once_that_are_refused_hold_nothing_up(
    approved: Attempt, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, second_asks, first_is_over = Event(), Event(), Event()

    def first() -> None:
        closing.query_attempt(approved.pk)
        first_is_over.set()

    def second() -> None:
        assert began.wait(30)
        try:
            closing.query_attempt(approved.pk)
        finally:
            second_asks.set()

    def decline(number: str) -> None:
        if not began.is_set():
            began.set()
            assert second_asks.wait(30)
        else:  # ends last
            second_asks.set()
            assert first_is_over.wait(30)

    monkeypatch.setattr(provider, "pay", decline)
    at_once(first, second)
    assert closing.close_attempt(approved.pk).status == "closed"


def test_an_attempt_that_is_over_is_not_captured(approved: Attempt, provider: ScriptedProvider) -> None:
    assert closing.close_attempt(approved.pk).status == "closed"
    provider.approve(approved.out_trade_no)  # by the link that they still have
    closing.look_again(approved.pk)
    assert called(provider) == ["create", "close", "query", "close"]
    assert provider.trades[approved.out_trade_no].status is TradeStatus.CLOSED


def test_nothing_is_captured_for_an_order_that_was_paid(approved: Attempt, provider: ScriptedProvider) -> None:
    other = opened(order_of(approved), method="h5")
    submission.submit_attempt(other.pk)
    fold(provider.pay(other.out_trade_no))
    closing.query_attempt(approved.pk)
    assert state_of(approved) == ("pending", 1990)
    assert sum(asked.count for asked in reconcile.all_open()) == 1
    assert (state_of(approved), "capture" in called(provider)) == (("closed", 1990), False)


def test_one_without_an_answer_is_not_taken_for_closed(approved: Attempt, provider: ScriptedProvider) -> None:
    provider.failing, provider.failure = frozenset({"capture"}), OutcomeUnknown("timed out")
    with pytest.raises(OutcomeUnknown):
        closing.query_attempt(approved.pk)
    for end in (closing.close_attempt, closing.query_attempt):
        with pytest.raises(OutcomeUnknown, match="may still be carried out"):
            end(approved.pk)
    assert state_of(approved) == ("pending", 0)
    Attempt.objects.update(capture_submitted_at=Now() - IN_DOUBT - timedelta(seconds=1))
    assert closing.close_attempt(approved.pk).status == "closed"


def test_the_money_of_one_without_an_answer_is_credited(approved: Attempt, provider: ScriptedProvider) -> None:
    provider.failing, provider.failure = frozenset({"capture"}), OutcomeUnknown("timed out")
    with pytest.raises(OutcomeUnknown):
        closing.query_attempt(approved.pk)
    provider.pay(approved.out_trade_no)  # it was carried out
    assert closing.close_attempt(approved.pk).status == "succeeded"
    assert state_of(approved) == ("succeeded", 1990)


def test_one_that_goes_out_during_a_close_keeps_it_open(approved: Attempt, provider: ScriptedProvider) -> None:
    provider.before_close = lambda number: Attempt.objects.update(capture_submitted_at=timezone.now()) and None
    with pytest.raises(OutcomeUnknown):
        closing.close_attempt(approved.pk)
    assert state_of(approved) == ("pending", 0)


def test_one_that_never_left_or_was_refused_holds_nothing_up(
    approved: Attempt, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.failing, provider.failure = frozenset({"capture"}), ProviderUnavailable("nobody there")
    with pytest.raises(ProviderUnavailable):
        closing.query_attempt(approved.pk)
    provider.failing = frozenset()
    monkeypatch.setattr(provider, "pay", lambda number: None)  # the shopper's card is declined
    assert closing.query_attempt(approved.pk).status == "pending"
    assert closing.close_attempt(approved.pk).status == "closed"
