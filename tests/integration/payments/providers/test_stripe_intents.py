"""Stripe's channel: intents by our number, numbers used again, the daily bill."""

import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderRejected
from payments.providers import registry
from payments.providers.actions import NextActionType
from payments.providers.base import FactKind, RefundStatus, TradeStatus
from payments.providers.stripe import bill as stripe_bill
from payments.providers.stripe import lookup as stripe_lookup
from payments.providers.stripe.client import StripeIntents
from tests.integration.payments.providers.conftest import opened, refund, towards
from tests.sandbox import Sandbox

DAY = 86_400


@pytest.fixture
def stripe(sandbox: Sandbox) -> StripeIntents:
    made: StripeIntents = towards(sandbox)["stripe"]
    return made


def number_of(age_seconds: float) -> str:
    """One of our numbers, made so long ago."""
    fresh = new_id().int & ((1 << 80) - 1)
    return uuid.UUID(int=(int((time.time() - age_seconds) * 1000) << 80) | fresh).hex


def in_the_store(sandbox: Sandbox, statement: str, *values: Any) -> None:
    """Change what Stripe's side remembers, as time does."""
    with sqlite3.connect(sandbox.folder / "sandbox.sqlite3", timeout=30) as connection:
        connection.execute(statement, values)
    connection.close()


def aged(sandbox: Sandbox, number: str, seconds: float) -> None:
    in_the_store(sandbox, "UPDATE trades SET created_at = created_at - ? WHERE out_trade_no = ?", seconds, number)


def test_an_old_number_is_found_by_search(stripe: StripeIntents, sandbox: Sandbox) -> None:
    old = number_of(2 * DAY)
    opened(stripe, old)
    assert stripe.query(out_trade_no=old).status is TradeStatus.NOT_FOUND  # the search is behind
    aged(sandbox, old, 2 * DAY)
    assert stripe.query(out_trade_no=old).status is TradeStatus.PENDING
    assert stripe.close(out_trade_no=old).status is TradeStatus.CLOSED
    with pytest.raises(ProviderRejected):  # a quote does not leave the search; the sandbox knows no escapes
        stripe.query(out_trade_no="it's \\ no number")


def test_among_too_many_it_is_unknown_until_the_search_has_it(
    stripe: StripeIntents, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripe_lookup, "PAGE", 1)
    # one more than too many: what is made older below may leave the window that is listed
    numbers = [new_id().hex for _ in range(stripe_lookup.LOOKUP_PAGES + 2)]
    for number in numbers:
        opened(stripe, number)
    assert stripe.query(out_trade_no=numbers[-1]).status is TradeStatus.PENDING
    with pytest.raises(OutcomeUnknown):
        stripe.query(out_trade_no=numbers[0])
    with pytest.raises(OutcomeUnknown):
        stripe.close(out_trade_no=numbers[0])
    aged(sandbox, numbers[0], 61)
    assert stripe.query(out_trade_no=numbers[0]).status is TradeStatus.PENDING


def test_wechat_through_stripe_is_a_code_to_scan(sandbox: Sandbox, number: str) -> None:
    stripe: Any = registry.build({"stripe": {**sandbox.channels()["stripe"], "METHOD": "wechat_pay"}})["stripe"]
    assert "SEK" in stripe.currencies  # Alipay there takes none
    action = opened(stripe, number)
    assert (action.type, action.url.split("?")[0]) == (NextActionType.QR_CODE, "weixin://wxpay/bizpayurl")
    prepay = action.url.rsplit("=", 1)[1]
    page = sandbox.http.get("/wechat/scan", params={"pr": prepay}, follow_redirects=True)
    assert page.url.path == f"/pay/{number}"


def test_paid_while_it_is_being_closed(sandbox: Sandbox, number: str) -> None:
    calls: list[str] = []

    @contextmanager
    def pays_before_the_third_call() -> Iterator[None]:
        calls.append("call")
        if len(calls) == 3:  # create, look, cancel, look again
            sandbox.pay(number)
        yield

    made: Any = registry.build(
        {"stripe": sandbox.channels()["stripe"]}, limits=lambda channel: pays_before_the_third_call()
    )["stripe"]
    reference = opened(made, number).reference
    closed = made.close(out_trade_no=number, reference=reference)
    assert (closed.status, closed.facts[0].kind) == (TradeStatus.PAID, FactKind.PAID)
    assert len(calls) == 4  # within the limits each, and never by the library's own doing


@pytest.mark.parametrize(
    ("refund_number", "moved"),
    [
        (uuid.uuid5(uuid.NAMESPACE_URL, "policy").hex, 500),
        (number_of(2 * DAY), 500),
        (new_id().hex, 1000),  # a young number: so the others prove something
    ],
    ids=["of our policy", "two days old", "young"],
)
def test_a_refund_moves_nothing_twice_after_its_key_was_forgotten(
    stripe: StripeIntents, sandbox: Sandbox, number: str, refund_number: str, moved: int
) -> None:
    reference = opened(stripe, number).reference
    sandbox.pay(number)
    first = refund(stripe, number, refund_number, 500, reference=reference)
    in_the_store(sandbox, "DELETE FROM objects WHERE id = ?", f"key {refund_number}")
    assert (refund(stripe, number, refund_number, 500, reference=reference) == first) is (moved == 500)
    assert sandbox.charges()[number]["refunded_minor"] == moved


def test_a_refund_is_found_among_many_pages_but_not_too_many(
    stripe: StripeIntents, sandbox: Sandbox, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripe_lookup, "PAGE", 1)
    reference = opened(stripe, number).reference
    sandbox.pay(number)
    numbers = [new_id().hex for _ in range(3)]
    for refund_number in numbers:
        refund(stripe, number, refund_number, 500, reference=reference)

    def found(refund_number: str) -> RefundStatus:
        return stripe.query_refund(out_trade_no=number, out_refund_no=refund_number, reference=reference).status

    assert [found(one) for one in numbers] == [RefundStatus.SUCCEEDED] * 3
    assert found(new_id().hex) is RefundStatus.NOT_FOUND
    monkeypatch.setattr(stripe_lookup, "REFUND_PAGES", 2)
    with pytest.raises(OutcomeUnknown):
        found(numbers[0])


def test_the_bill_of_a_day_has_every_payment_and_refund_of_it(
    stripe: StripeIntents, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = date(2026, 3, 1)
    numbers, other_day, unpaid = [new_id().hex for _ in range(3)], new_id().hex, new_id().hex
    for number in (*numbers, other_day, unpaid):
        opened(stripe, number)
    for number in (*numbers, other_day):
        sandbox.pay(number)
    refund(stripe, numbers[0], refund_number := new_id().hex, 500)
    for number, then in (*((number, day) for number in numbers), (other_day, day + timedelta(days=1))):
        noon = datetime(then.year, then.month, then.day, 12, tzinfo=UTC).timestamp()
        in_the_store(sandbox, "UPDATE trades SET paid_at = ? WHERE out_trade_no = ?", noon, number)
        in_the_store(sandbox, "UPDATE refunds SET created_at = ? WHERE out_trade_no = ?", noon + 60, number)
    facts = stripe.query(out_trade_no=numbers[0]).facts
    monkeypatch.setattr(stripe_lookup, "PAGE", 2)
    lines = stripe.bill(day=day)
    paid = [line for line in lines if line.kind is FactKind.PAID]
    assert sorted(line.out_trade_no for line in paid) == sorted(numbers)
    assert {(line.amount_minor, line.currency, line.out_refund_no) for line in paid} == {(1990, "CNY", "")}
    (back,) = [line for line in lines if line.kind is FactKind.REFUNDED]
    assert (back.out_trade_no, back.out_refund_no, back.amount_minor) == (numbers[0], refund_number, 500)
    assert back.occurred_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)
    assert facts[0].provider_txn_id in {line.provider_txn_id for line in paid}
    assert stripe.bill(day=date(2025, 1, 1)) == ()
    monkeypatch.setattr(stripe_bill, "PAGES_MAX", 1)
    with pytest.raises(OutcomeUnknown):  # one that has no end
        stripe.bill(day=day)
