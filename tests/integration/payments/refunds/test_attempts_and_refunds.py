"""Calls to providers: under one number, and never inside a transaction."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob

from payments import tasks
from payments.attempts import asking, closing, submission
from payments.attempts import opening as attempts
from payments.errors import OutcomeUnknown, ProviderRejected
from payments.models import Anomaly, Attempt, Payment, Refund
from payments.providers.base import RefundResult, TradeStatus
from payments.reconciliation import reconcile
from payments.refunds import steps as refunds
from payments.settlement.backoff import delay_seconds
from shop.models import Order
from tests.integration.payments.conftest import fold, opened, refund_asked, refunded
from tests.integration.shop.provider import ScriptedProvider
from tests.threads import at_once


def called(provider: ScriptedProvider) -> list[str]:
    return [method for method, _ in provider.calls]


def test_opening_needs_a_transaction_and_no_provider_is_called_inside_one(
    attempt: Attempt, new_order: Callable[[], Order]
) -> None:
    with pytest.raises(RuntimeError):
        attempts.open_attempt(
            **{"order_id": new_order().id, "owner_id": None, "amount_minor": 1, "currency": "CNY"},
            **{"channel": "wechat", "description": "Mug", "expires_at": timezone.now()},
        )
    assert Payment.objects.count() == 1
    for call in (
        lambda: submission.submit_attempt(attempt.id),
        lambda: closing.query_attempt(attempt.id),
        lambda: closing.close_payment(order_id=attempt.payment.order_id),
        lambda: refunds.submit_refund(uuid4()),
    ):
        with pytest.raises(RuntimeError, match="transaction"), transaction.atomic():
            call()


@pytest.mark.parametrize("fails", [False, True])
def test_opened_after_it_was_closed_is_closed_in_the_end(
    attempt: Attempt, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    original = provider.create

    def closed_meanwhile(**arguments: Any) -> Any:
        closing.close_payment(order_id=attempt.payment.order_id)
        if fails:
            provider.failing, provider.failure = frozenset({"close"}), OutcomeUnknown("timed out")
        return original(**arguments)

    monkeypatch.setattr(provider, "create", closed_meanwhile)
    assert submission.submit_attempt(attempt.id).status == "closed"
    assert called(provider) == ["close", "create", "close"]
    if fails:
        assert looks_again_at(attempt) == 1
        provider.failing = frozenset()
        provider.trades[attempt.out_trade_no].status = TradeStatus.PENDING
        tasks.look_again(attempt_id=attempt.out_trade_no)
    assert provider.trades[attempt.out_trade_no].status is TradeStatus.CLOSED


@pytest.mark.parametrize(("method", "ends"), [("create", "pending"), ("close", closing.CloseResult.CLOSED)])
def test_a_copy_that_may_not_ask_again_gets_what_the_running_call_does(
    attempt: Attempt, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, method: str, ends: str
) -> None:
    call, ask, inside, unasked = (
        getattr(provider, method),
        asking.for_shopper,
        threading.Event(),
        threading.Event(),
    )

    def slow(**arguments: Any) -> Any:
        inside.set()
        assert unasked.wait(30)
        return call(**arguments)

    def refused_a_question(*arguments: Any) -> Any:
        assert ask(*arguments) is None
        unasked.set()

    def run(*, by_shopper: bool = False) -> str:
        if method == "close":
            return closing.close_payment(order_id=attempt.payment.order_id, by_shopper=by_shopper)
        return submission.submit_attempt(attempt.id, by_shopper=by_shopper).status

    def copy() -> str:
        assert inside.wait(30)
        return run(by_shopper=True)

    if method == "close":
        submission.submit_attempt(attempt.id)
    Attempt.objects.update(asked_at=Now())
    monkeypatch.setattr(provider, method, slow)
    monkeypatch.setattr(asking, "for_shopper", refused_a_question)
    monkeypatch.setattr(asking, "WAITED_FOR", timedelta(seconds=30))  # however busy the machine is
    assert at_once(run, copy) == [ends, ends]
    assert called(provider).count(method) == 1


def test_closed_before_it_was_submitted_is_not_submitted(attempt: Attempt, provider: ScriptedProvider) -> None:
    closing.close_payment(order_id=attempt.payment.order_id)
    assert submission.submit_attempt(attempt.id).status == "closed"
    assert closing.query_attempt(attempt.id).status == "closed"
    assert called(provider) == ["close"]


def looks_again_at(attempt: Attempt) -> int:
    named = {"task_name": "payments.look_again", "args__attempt_id": attempt.out_trade_no}
    return ProcrastinateJob.objects.filter(**named).count()


def test_who_has_begun_to_pay_by_a_link_of_a_closed_order_finds_it_closed(
    attempt: Attempt, provider: ScriptedProvider
) -> None:
    submission.submit_attempt(attempt.id)
    begun = provider.trades.pop(attempt.out_trade_no)
    closing.close_attempt(attempt.id)
    provider.trades[attempt.out_trade_no] = begun  # the shopper logs in, and has not paid yet
    provider.failing, provider.failure = frozenset({"close"}), OutcomeUnknown("timed out")
    with pytest.raises(OutcomeUnknown):  # so that the queue comes again
        closing.look_again(attempt.id)
    provider.failing = frozenset()
    closing.look_again(attempt.id)
    assert called(provider)[-1] == "close"
    assert provider.query(out_trade_no=attempt.out_trade_no).status is TradeStatus.CLOSED


@pytest.mark.parametrize("task", ["look_again", "replay_early", "submit_refund"])
def test_what_a_killed_worker_was_doing_is_taken_up(attempt: Attempt, task: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, status, args) VALUES ('default',"
            " %s, 'doing', jsonb_build_object('any_id', %s::text)) RETURNING id",
            [f"payments.{task}", attempt.out_trade_no],
        )
        (job,) = cursor.fetchone()

    async def take_up(worker: Any) -> int:
        async with worker.open_async():
            return await tasks.take_up_stalled.func(SimpleNamespace(app=worker), 0)

    with app.replace_connector(app.connector.get_worker_connector()) as worker:
        assert asyncio.run(take_up(worker)) >= 1
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM procrastinate_jobs WHERE id = %s RETURNING status::text", [job])
        assert cursor.fetchone() == ("todo",)


def test_what_its_provider_has_closed_or_nobody_can_pay_any_more_is_not_asked_about_again(
    attempt: Attempt, provider: ScriptedProvider, new_order: Callable[[], Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    submission.submit_attempt(attempt.id)
    closing.close_attempt(attempt.id)
    late = opened(new_order())
    Attempt.objects.filter(pk=late.pk).update(expires_at=timezone.now() - closing.LOOK_AGAIN)
    original = provider.close
    monkeypatch.setattr(provider, "close", lambda **named: replace(original(**named), may_yet_begin=True))
    closing.close_attempt(late.id)
    assert (looks_again_at(attempt), looks_again_at(late)) == (0, 0)


def test_a_refund_that_is_withdrawn_before_it_is_submitted_is_not_made(
    paid_payment: Payment, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    refund, charge_of = refund_asked(paid_payment.pk, 500), refunds.charge_of

    def withdraw(refund: Refund) -> Any:
        with transaction.atomic():
            refunds.withdraw_refund(refund.id, message="abandoned")
        return charge_of(refund)

    monkeypatch.setattr(refunds, "charge_of", withdraw)  # after it was read, before it is marked as submitted
    assert refunds.submit_refund(refund.id).status == "failed"
    assert all(method != "refund" for method, _ in provider.calls)
    paid_payment.refresh_from_db()
    assert (paid_payment.reserved_minor, paid_payment.refunded_minor) == (0, 0)


def test_a_success_reported_before_the_refusal_stands(
    paid_payment: Payment, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    refund, give_back = refund_asked(paid_payment.pk, 500), provider.refund

    def refuse_after_it_is_done(**arguments: Any) -> RefundResult:
        fold(*give_back(**arguments).facts, source="notification")
        raise ProviderRejected("NOT_ENOUGH", "no money")

    monkeypatch.setattr(provider, "refund", refuse_after_it_is_done)
    assert refunds.submit_refund(refund.id).status == "succeeded"
    assert not Anomaly.objects.exists()


def test_a_success_after_the_refusal_settles_it(paid_payment: Payment, provider: ScriptedProvider) -> None:
    refund, other = refund_asked(paid_payment.pk, 500), refund_asked(paid_payment.pk, 300)
    provider.failing, provider.failure = frozenset({"refund"}), ProviderRejected("NOT_ENOUGH", "no money")
    for one in (refund, other):
        assert refunds.submit_refund(one.id).status == "failed"
    fold(refunded(refund.attempt, 500, refund.out_refund_no))
    refund.refresh_from_db()
    assert refund.status == "succeeded"
    assert dict(Anomaly.objects.values_list("reference", "resolution")) == {
        refund.out_refund_no: f"refunded 5.00 CNY under {refund.out_refund_no}",
        other.out_refund_no: "",
    }


def due_now() -> None:
    Attempt.objects.filter(next_query_at__isnull=False).update(next_query_at=Now())
    Refund.objects.filter(next_query_at__isnull=False).update(next_query_at=Now())


def test_the_timer_asks_ever_more_rarely(attempt: Attempt, provider: ScriptedProvider) -> None:
    assert [delay_seconds(count) for count in (0, 1, 2, 8, 9, 500)] == [10, 20, 40, 2560, 3600, 3600]
    submission.submit_attempt(attempt.id)
    due_now()
    reconcile.run_as_leader()
    attempt.refresh_from_db()
    assert attempt.query_count == 1
    assert attempt.next_query_at is not None
    assert attempt.next_query_at > timezone.now()


def test_one_that_fails_does_not_stop_the_others(
    new_order: Callable[[], Order], provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_ones = [opened(new_order()) for _ in range(3)]
    for one in opened_ones:
        submission.submit_attempt(one.id)
        provider.pay(one.out_trade_no)
    failures = [RuntimeError("a fault"), OutcomeUnknown("no answer")]
    original = provider.query

    def query(*, out_trade_no: str, reference: str = "") -> Any:
        if failures:
            raise failures.pop()
        return original(out_trade_no=out_trade_no)

    monkeypatch.setattr(provider, "query", query)
    due_now()
    assert reconcile.run_as_leader() == 3
    assert Payment.objects.filter(status="succeeded").count() == 1


def test_the_command_asks_about_what_is_open_and_not_due_too(
    paid_payment: Payment,
    new_order: Callable[[], Order],
    provider: ScriptedProvider,
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = opened(new_order())
    submission.submit_attempt(waiting.id)
    refund = refund_asked(paid_payment.pk, 500)
    provider.pay(waiting.out_trade_no)

    call_command("reconcile")
    assert "done: asked about 0." in capsys.readouterr().out
    call_command("reconcile", "--all", limit=1)  # the attempt; the refund would be the second
    assert "done: asked about 1." in capsys.readouterr().out
    waiting.refresh_from_db()
    assert waiting.status == "succeeded"
    call_command("reconcile", "--all")
    refund.refresh_from_db()
    assert refund.status == "succeeded"


def test_the_command_fails_where_nobody_answers_and_bounds_attempts_and_refunds_together(
    paid_payment: Payment, new_order: Callable[[], Order], provider: ScriptedProvider
) -> None:
    lost = opened(new_order())
    provider.failing = frozenset({"create", "query", "refund"})
    provider.failure = OutcomeUnknown("timed out")
    submission.submit_attempt(lost.id)
    refund_asked(paid_payment.pk, 500)
    due_now()
    with pytest.raises(CommandError, match="asked about 1, without an answer for 1"):
        call_command("reconcile", limit=1)
    due_now()
    with pytest.raises(CommandError, match="asked about 2, without an answer for 2"):
        call_command("reconcile")
    provider.failing, provider.failure = frozenset({"query"}), ProviderRejected("BUSY", "too many questions")
    next_question = Attempt.objects.values_list("next_query_at", "query_count").get(pk=lost.pk)
    with pytest.raises(CommandError, match="asked about 2, without an answer for 1"):
        call_command("reconcile", "--all")
    assert Attempt.objects.values_list("next_query_at", "query_count").get(pk=lost.pk) == next_question
