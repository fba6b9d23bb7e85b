"""The certificate: every channel holds it; what a channel cannot do is not called."""

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

import pytest

from payments.errors import ProviderUnavailable
from payments.providers import registry
from payments.providers.base import BillLine, Provider
from payments.providers.plugin import Capability
from payments.testing import NotCertified, certify
from tests.integration.payments.providers.careless import CHANNELS, SandboxSide, careless
from tests.sandbox import Sandbox


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_every_channel_of_ours_is_certified(channel: str, sandbox: Sandbox) -> None:
    certificate = certify(registry.plugin(channel, {}), SandboxSide(channel, sandbox))
    assert set(certificate.skipped) == CHANNELS[channel].skipped
    assert len(certificate.passed) + len(certificate.skipped) == 23


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
