"""Every channel holds the certificate; a broken plug-in fails by the name of the case."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderError, ProviderUnavailable
from payments.providers import registry
from payments.providers.base import (
    BillLine,
    Notice,
    Provider,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
    closed_fact,
)
from payments.providers.plugin import Acknowledgement, Capability
from payments.testing import NotCertified, certify
from tests.integration.payments.providers.careless import CHANNELS, SandboxSide, careless
from tests.sandbox import Sandbox


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_every_channel_of_ours_is_certified(channel: str, sandbox: Sandbox) -> None:
    certificate = certify(registry.plugin(channel, {}), SandboxSide(channel, sandbox))
    assert set(certificate.skipped) == CHANNELS[channel].skipped
    assert len(certificate.passed) + len(certificate.skipped) == 23


def unverified(genuine: Provider, *, headers: Any, body: bytes, now: Any) -> Notice:
    """Takes the first notification for genuine, and all others for it."""
    try:
        unverified.read = genuine.read_notification(headers=headers, body=body, now=now)  # type: ignore[attr-defined]
    except ProviderError:
        return replace(unverified.read, event_type="CHANGED")  # type: ignore[attr-defined]
    return unverified.read  # type: ignore[attr-defined,no-any-return]


def never_stale(genuine: Provider, *, headers: Any, body: bytes, now: Any) -> Notice:
    stamp = next(value for name, value in headers.items() if name.lower() == "wechatpay-timestamp")
    return genuine.read_notification(headers=headers, body=body, now=now.fromtimestamp(int(stamp), now.tzinfo))


def renamed(genuine: Provider, **given: Any) -> Notice:
    return replace(genuine.read_notification(**given), notification_id=new_id().hex)


def unnumbered(genuine: Provider, **given: Any) -> Notice:
    return replace(genuine.read_notification(**given), notification_id="1")


def stating(**changed: Any) -> Callable[..., Trade]:
    """A query whose facts are not quite what they were."""

    def query(genuine: Provider, **given: Any) -> Trade:
        trade = genuine.query(**given)
        return replace(trade, facts=tuple(replace(fact, **changed) for fact in trade.facts))

    return query


def floating(genuine: Provider, **given: Any) -> Trade:
    trade = genuine.query(**given)
    facts = (replace(fact, amount_minor=float(fact.amount_minor)) for fact in trade.facts)  # type: ignore[arg-type]
    return replace(trade, facts=tuple(facts))


def all_of_it(genuine: Provider, **given: Any) -> RefundResult:
    made = genuine.query_refund(**given)
    return replace(made, facts=tuple(replace(fact, is_whole=True) for fact in made.facts))


def always_ours(genuine: Provider, **given: Any) -> Notice:
    notice = genuine.read_notification(**given)
    return replace(notice, facts=tuple(replace(fact, merchant=genuine.merchant) for fact in notice.facts))


def hopeful(genuine: Provider, **given: Any) -> Trade:
    try:
        return genuine.query(**given)
    except OutcomeUnknown:
        return Trade(status=TradeStatus.NOT_FOUND)


def credulous(genuine: Provider, **given: Any) -> RefundResult:
    try:
        return genuine.refund(**given)
    except OutcomeUnknown:
        return RefundResult(status=RefundStatus.PROCESSING)


def again(genuine: Provider, **given: Any) -> RefundResult:
    return genuine.refund(**{**given, "out_refund_no": new_id().hex})


def giving(genuine: Provider, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
    about: Any = {"out_trade_no": out_trade_no, "out_refund_no": out_refund_no, "reference": reference}
    money: Any = {"amount_minor": 990, "paid_minor": 1990, "currency": "CNY"}
    return genuine.refund(**about, **money, reason="", notify_url="https://shop.example/")


def for_good(genuine: Provider, **given: Any) -> Trade:
    genuine.close(**given)
    return Trade(status=TradeStatus.CLOSED)


@pytest.mark.parametrize(
    ("case", "method", "mistake", "sentence"),
    [
        ("duplicates", "read_notification", renamed, "copies of a notification have different ids"),
        ("reordered", "read_notification", unnumbered, "a refund's notification has the id of the payment's"),
        ("parallel", "refund", again, "one refund, asked for by several threads, moved money twice"),
        ("refunds", "refund", again, "the same refund, asked for twice, moved money twice"),
        ("asking moves nothing", "query_refund", giving, "a question moved money"),
        ("refunds", "query_refund", all_of_it, "a refund's fact must state its own amount, not a sum"),
        ("a payment", "query", floating, "its fact's amount must be an int of minor units, not a float"),
        ("a payment", "query", stating(provider_txn_id="1"), "two payments have one `provider_txn_id`"),
        ("delayed", "query", stating(provider_txn_id="another"), "it would count twice"),
        ("early", "query", stating(provider_txn_id="another"), "an early notification states another fact"),
        ("after close", "close", for_good, "closing an unpaid trade must be CLOSED with its fact"),
        ("wrong amount", "query", stating(amount_minor=1990), "the amount that was asked, not what was charged"),
        ("wrong currency", "query", stating(currency="CNY"), "the currency that was asked, not what was charged"),
        ("wrong merchant", "read_notification", always_ours, "the money went to another merchant"),
        ("wrong number", "query", hopeful, "query returned not_found after an answer about another number"),
        ("answers lost", "refund", credulous, "refund returned although its answer was lost"),
        ("refused questions", "query", hopeful, "query returned not_found after a bare 500"),
        ("forged", "read_notification", unverified, "a notification that was changed on the way was taken"),
        ("stale", "read_notification", never_stale, "a notification signed 300 s ago was taken"),
        ("foreign answers", "query", hopeful, "query returned not_found after a 200 with <html>"),
        ("a bill", "bill", lambda genuine, **given: (), "the bill lists []"),
    ],
)
def test_a_broken_plugin_fails_by_the_name_of_the_case(
    case: str, method: str, mistake: Callable[..., Any], sentence: str, sandbox: Sandbox
) -> None:
    with pytest.raises(NotCertified, match=f"^{case}: ") as found:
        certify(
            careless(registry.plugin("wechat", {}), method, mistake), SandboxSide("wechat", sandbox), only=(case,)
        )
    assert sentence in found.value.certificate.broken[case]


@pytest.mark.parametrize("status", [200, 500])
def test_a_plugin_that_answers_all_notifications_alike_is_broken(status: int, sandbox: Sandbox) -> None:
    plugin = replace(registry.plugin("wechat", {}), acknowledge=lambda refused: Acknowledgement(status=status))
    with pytest.raises(NotCertified, match=r"^forged: `acknowledge` must answer 2xx to what was taken, and other"):
        certify(plugin, SandboxSide("wechat", sandbox), only=("forged",))


def forgetful(genuine: Provider, *, out_trade_no: str, reference: str = "") -> Trade:
    """Closes a trade for us, and not there."""
    given = {"channel": genuine.channel, "merchant": genuine.merchant, "out_trade_no": out_trade_no}
    return Trade(status=TradeStatus.CLOSED, facts=(closed_fact(**given),))


def test_a_plugin_that_captures_what_it_let_go_is_broken(sandbox: Sandbox) -> None:
    side = SandboxSide("paypal", sandbox)
    with pytest.raises(NotCertified, match=r"^a void: a trade that was let go must stay CLOSED"):
        certify(careless(registry.plugin("paypal", {}), "close", forgetful), side, only=("a void",))


@pytest.mark.parametrize(
    ("lacking", "skipped"),
    [
        (Capability.BILL, {"a bill"}),
        (Capability.CLOSE, {"answers lost", "after close", "a void"}),
        (Capability.VOID, {"a void"}),
        (Capability.PARTIAL_REFUND, {"refunds"}),
        (
            Capability.REFUND,
            {"refunds", "parallel", "answers lost", "reordered", "a bill", "asking moves nothing"},
        ),
    ],
)
def test_what_a_channel_cannot_do_is_neither_called_nor_broken(
    lacking: Capability, skipped: set[str], sandbox: Sandbox
) -> None:
    def never(genuine: Provider, **given: Any) -> NoReturn:
        raise AssertionError(f"asked for a {lacking.value}")

    methods = {
        Capability.REFUND: ("refund", "query_refund"),
        Capability.BILL: ("bill",),
        Capability.CLOSE: ("close",),
    }
    plugin = registry.plugin("paypal", {})
    for method in methods.get(lacking, ()):
        plugin = careless(plugin, method, never)
    cases = {*skipped, "refused questions", "wrong number", "foreign answers"}
    plugin = replace(plugin, capabilities=plugin.capabilities - {lacking})
    assert set(certify(plugin, SandboxSide("paypal", sandbox), only=cases).skipped) == skipped


@pytest.mark.parametrize(("days", "is_bad"), [((0, 1, 1), False), ((1, 1), True)], ids=["ended", "wrong zone"])
def test_a_day_that_ends_meanwhile_is_no_fault(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, days: tuple[int, ...], is_bad: bool
) -> None:
    """A provider whose facts are of another day than its zone's would begin the case again for ever."""
    later = iter(days)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=next(later))

    ended = iter([ProviderUnavailable("the bill may lack lines for three hours")])

    def bill(genuine: Provider, **given: Any) -> tuple[BillLine, ...]:
        for error in ended:
            raise error
        return genuine.bill(**given)

    monkeypatch.setattr("payments.testing.cases.money.datetime", Clock, raising=False)
    plugin = careless(registry.plugin("wechat", {}), "bill", bill)
    with pytest.raises(NotCertified, match="may lack lines") if is_bad else nullcontext():
        assert certify(plugin, SandboxSide("wechat", sandbox), only=("a bill",)).passed == ("a bill",)


def test_a_case_that_does_not_exist_is_named(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="no cases: forgery; known are declared, a payment, asking moves nothing"):
        certify(registry.plugin("wechat", {}), SandboxSide("wechat", sandbox), only=("forgery",))


def test_it_needs_no_test_framework_nor_settings() -> None:
    code = "import payments.testing, sys; sys.exit(bool({'pytest', 'shop', 'tests'} & set(sys.modules)))"
    bare = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    assert subprocess.run([sys.executable, "-c", code], env=bare, check=False).returncode == 0
