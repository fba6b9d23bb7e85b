"""Every channel holds the certificate; a broken plug-in fails by the name of the case."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderError
from payments.providers import registry
from payments.providers.base import Notice, Provider, RefundResult, RefundStatus, Trade, TradeStatus
from payments.providers.plugin import Plugin
from payments.testing import NotCertified, certify
from tests.integration.payments.providers.certifying import CHANNELS, simulator_of
from tests.sandbox import Sandbox


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_every_channel_of_ours_is_certified(channel: str, sandbox: Sandbox) -> None:
    certificate = certify(registry.plugin(channel, {}), simulator_of(channel, sandbox))
    assert set(certificate.skipped) == CHANNELS[channel].skipped
    assert len(certificate.passed) + len(certificate.skipped) == 19


class Careless:
    """A provider with one mistake: `broken` replaces methods, each given the genuine provider first."""

    def __init__(self, genuine: Provider, broken: dict[str, Callable[..., Any]]) -> None:
        self._genuine, self._broken = genuine, broken

    def __getattr__(self, name: str) -> Any:
        if name in self._broken:
            return lambda **given: self._broken[name](self._genuine, **given)
        return getattr(self._genuine, name)


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


def as_asked(genuine: Provider, **given: Any) -> Trade:
    trade = genuine.query(**given)
    return replace(trade, facts=tuple(replace(fact, amount_minor=1990) for fact in trade.facts))


def always_ours(genuine: Provider, **given: Any) -> Notice:
    notice = genuine.read_notification(**given)
    return replace(notice, facts=tuple(replace(fact, merchant=genuine.merchant) for fact in notice.facts))


def other_number(genuine: Provider, **given: Any) -> Trade:
    trade = genuine.query(**given)
    return replace(trade, facts=tuple(replace(fact, provider_txn_id="another") for fact in trade.facts))


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


def no_bill(genuine: Provider, **given: Any) -> tuple[()]:
    return ()


def told_as_yen(genuine: Provider, **given: Any) -> Trade:
    trade = genuine.query(**given)
    return replace(trade, facts=tuple(replace(fact, currency="CNY") for fact in trade.facts))


@pytest.mark.parametrize(
    ("case", "method", "mistake", "sentence"),
    [
        ("duplicates", "read_notification", renamed, "copies of a notification have different ids"),
        ("parallel", "refund", again, "one refund, asked for by several threads, moved money twice"),
        ("refunds", "refund", again, "the same refund, asked for twice, moved money twice"),
        ("asking moves nothing", "query_refund", giving, "a question moved money"),
        ("delayed", "query", other_number, "it would count twice"),
        ("early", "query", other_number, "an early notification states another fact"),
        ("after close", "close", for_good, "closing an unpaid trade must be CLOSED with its fact"),
        ("wrong amount", "query", as_asked, "the amount that was asked, not what was charged"),
        ("wrong currency", "query", told_as_yen, "the currency that was asked, not what was charged"),
        ("wrong merchant", "read_notification", always_ours, "the money went to another merchant"),
        ("wrong number", "query", hopeful, "query returned not_found after an answer about another number"),
        ("answers lost", "refund", credulous, "refund returned although its answer was lost"),
        ("refused questions", "query", hopeful, "query returned not_found after a bare 500"),
        ("forged", "read_notification", unverified, "a notification that was changed on the way was taken"),
        ("stale", "read_notification", never_stale, "a notification signed 300 s ago was taken"),
        ("foreign answers", "query", hopeful, "query returned not_found after a 200 with <html>"),
        ("a bill", "bill", no_bill, "the bill lists []"),
    ],
)
def test_a_broken_plugin_fails_by_the_name_of_the_case(
    case: str, method: str, mistake: Callable[..., Any], sentence: str, sandbox: Sandbox
) -> None:
    sound = registry.plugin("wechat", {})
    broken: Plugin = replace(
        sound,
        build=lambda *given: Careless(sound.build(*given), {method: mistake}),  # type: ignore[arg-type,return-value]
    )
    with pytest.raises(NotCertified, match=f"^{case}: ") as found:
        certify(broken, simulator_of("wechat", sandbox), only=(case,))
    assert sentence in found.value.certificate.broken[case]


def test_a_case_that_does_not_exist_is_named(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="no cases: forgery; known are a payment, asking moves nothing"):
        certify(registry.plugin("wechat", {}), simulator_of("wechat", sandbox), only=("forgery",))


def test_it_needs_no_test_framework_nor_settings() -> None:
    code = "import payments.testing, sys; sys.exit(bool({'pytest', 'shop', 'tests'} & set(sys.modules)))"
    bare = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    assert subprocess.run([sys.executable, "-c", code], env=bare, check=False).returncode == 0
