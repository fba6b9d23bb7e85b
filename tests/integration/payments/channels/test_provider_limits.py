"""Limits of calls to a provider, over all threads and processes; without Redis none."""

from typing import Any

import pytest
import redis

from idempotency.locks.engine.hub import tagged
from idempotency.observability import metrics
from payments.attempts import calling, submission
from payments.channels import limits
from payments.channels.sharing import UNSHARED
from payments.errors import NoRoom, OutcomeUnknown, ProviderUnavailable
from payments.models import Attempt
from payments.providers.base import Provider, TradeStatus
from tests.integration.idempotency.locks.actors import until
from tests.integration.payments.channels.conftest import Desk, OpenAttempt, counted, scripts_run
from tests.payments_settings import limited
from tests.threads import in_background
from tests.unit.payments.providers.conftest import Company, alipay_says, unpaid

pytestmark = pytest.mark.usefixtures("redis_server")

NUMBER = "a" * 32


def ask(provider: Provider) -> TradeStatus:
    return provider.query(out_trade_no=NUMBER).status


def waiting(server: redis.Redis, channel: str = "wechat") -> int:
    return int(server.zcard(f"{tagged('permits', f'provider:{channel}')}:queue"))


def test_no_more_run_at_once_than_are_permitted(
    wechat: Provider, desk: Desk, settings: Any, redis_server: redis.Redis
) -> None:
    settings.PAYMENTS = limited(CALLS=2, WAIT_SECONDS=30)
    calls = [in_background(lambda: ask(wechat)) for _ in range(6)]
    desk.arrived(2)
    until(lambda: waiting(redis_server) == 4, "four wait")
    desk.let_go(6)
    assert [call.result() for call in calls] == [TradeStatus.PENDING] * 6
    assert desk.most == 2


def test_without_room_nothing_is_sent(wechat: Provider, desk: Desk, company: Company, settings: Any) -> None:
    settings.PAYMENTS = limited(CALLS=1, WAIT_SECONDS=0)
    first = in_background(lambda: ask(wechat))
    desk.arrived(1)
    with pytest.raises(ProviderUnavailable, match="1 calls to wechat are running"):
        ask(wechat)
    assert len(company.asked) == 1
    trade = {"code": "10000", "out_trade_no": NUMBER, "trade_status": "WAIT_BUYER_PAY"}
    company.answer = alipay_says("alipay.trade.query", trade)
    assert ask(calling.provider("alipay")) is TradeStatus.PENDING
    company.answer = unpaid(company)
    desk.let_go(1)
    assert first.result() is TradeStatus.PENDING
    assert ask(wechat) is TradeStatus.PENDING


def by_shopper(provider: Provider) -> TradeStatus:
    with limits.for_shopper():
        return ask(provider)


def test_shoppers_questions_leave_permits_for_all_other_calls(
    wechat: Provider, desk: Desk, company: Company, settings: Any
) -> None:
    settings.PAYMENTS = limited(CALLS=4, WAIT_SECONDS=30)
    first = in_background(lambda: by_shopper(wechat))
    desk.arrived(1)
    with pytest.raises(NoRoom, match="1 calls to wechat:shoppers are running"):
        by_shopper(wechat)  # at once, although others would wait
    others = [in_background(lambda: ask(wechat)) for _ in range(3)]
    desk.arrived(3)
    assert len(company.asked) == 4
    desk.let_go(4)
    assert [call.result() for call in [first, *others]] == [TradeStatus.PENDING] * 4


def test_the_rate_is_kept_and_a_refusal_gives_its_permit_back(
    wechat: Provider, company: Company, settings: Any, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RATE_SECONDS", 3600)
    settings.PAYMENTS = limited(CALLS=1, CALLS_PER_SECOND=2, WAIT_SECONDS=0)
    assert [ask(wechat), ask(wechat)] == [TradeStatus.PENDING] * 2
    for _ in range(3):
        with pytest.raises(ProviderUnavailable, match="2 calls a second to wechat"):
            ask(wechat)
    assert len(company.asked) == 2
    redis_server.delete(tagged("rate", "provider:wechat"))
    assert ask(wechat) is TradeStatus.PENDING


def test_a_turn_that_comes_in_time_is_waited_for(
    wechat: Provider, company: Company, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RATE_SECONDS", 0.1)
    settings.PAYMENTS = limited(CALLS_PER_SECOND=1, WAIT_SECONDS=30)
    calls = [in_background(lambda: ask(wechat)) for _ in range(4)]
    assert [call.result() for call in calls] == [TradeStatus.PENDING] * 4


def test_whatever_the_call_comes_to_the_permit_goes_back(
    wechat: Provider, company: Company, settings: Any
) -> None:
    settings.PAYMENTS = limited(CALLS=1, WAIT_SECONDS=0)
    company.answer = lambda body: (502, {}, b"")
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            ask(wechat)
    company.answer = unpaid(company)
    assert ask(wechat) is TradeStatus.PENDING


def test_a_call_costs_three_commands(wechat: Provider, redis_server: redis.Redis) -> None:
    assert scripts_run(redis_server, lambda: ask(wechat)) == 3


def test_without_redis_calls_go_out_unlimited(
    wechat: Provider, company: Company, settings: Any, away: None
) -> None:
    settings.PAYMENTS = limited(CALLS=1, CALLS_PER_SECOND=1, WAIT_SECONDS=0)
    before = counted(UNSHARED, what=limits.PERMIT), counted(metrics.redis_failures)
    assert [ask(wechat) for _ in range(3)] == [TradeStatus.PENDING] * 3
    assert len(company.asked) == 3
    after = counted(UNSHARED, what=limits.PERMIT), counted(metrics.redis_failures)
    assert after == (before[0] + 3, before[1] + 1)  # one time-out was paid


def test_switched_off_is_unlimited_too(wechat: Provider, company: Company, settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "REDIS": None}
    settings.PAYMENTS = limited(CALLS_PER_SECOND=1)
    assert [ask(wechat) for _ in range(3)] == [TradeStatus.PENDING] * 3


@pytest.mark.django_db(transaction=True)
def test_a_page_payment_makes_no_call_and_takes_no_room(
    open_attempt: OpenAttempt, company: Company, redis_server: redis.Redis
) -> None:
    attempt = open_attempt("alipay", status="created")
    Attempt.objects.filter(pk=attempt.pk).update(submitted_at=None)
    submission.submit_attempt(attempt.pk)
    assert not company.asked
    assert not redis_server.keys("*provider*")
