"""Each channel's side of the sandbox as a simulator, and providers with one mistake."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from payments.providers.base import Provider
from payments.providers.plugin import Plugin
from payments.providers.settings_fields import Settings
from payments.testing import Charge
from tests.sandbox import Sandbox

FAULTS = {"amount": "wrong_amount", "currency": "wrong_currency", "merchant": "wrong_seller"}


@dataclass(frozen=True, kw_only=True)
class Channel:
    field: str  # the setting of the provider's address
    path: str  # its place below the sandbox's
    mistakes: frozenset[str]
    skipped: set[str]  # the cases that it cannot show
    merchant: str = ""  # the setting that names the account
    stale_after: timedelta | None = None


CHANNELS = {
    "wechat": Channel(
        field="API_URL",
        path="/wechat",
        merchant="MCH_ID",
        mistakes=frozenset(FAULTS),
        skipped={"a void", "a dispute"},
        stale_after=timedelta(seconds=300),
    ),
    "alipay": Channel(
        field="GATEWAY_URL",
        path="/alipay/gateway.do",
        merchant="SELLER_ID",
        mistakes=frozenset({"amount", "merchant"}),  # its documents name no currency
        skipped={"stale", "wrong currency", "a void", "a dispute"},
    ),
    "paypal": Channel(
        field="API_URL",
        path="/paypal",
        merchant="MERCHANT_ID",
        mistakes=frozenset(FAULTS),
        skipped={"early"},  # an approved order is captured only by who knows its number
        stale_after=timedelta(days=4),
    ),
    "stripe": Channel(
        field="API_URL",
        path="/stripe",
        mistakes=frozenset({"amount", "currency"}),  # its documents name no account
        skipped={"wrong merchant", "a void"},
        stale_after=timedelta(seconds=300),
    ),
}


class SandboxSide:
    def __init__(self, name: str, sandbox: Sandbox) -> None:
        self.channel, self._sandbox = CHANNELS[name], sandbox
        self._fields = sandbox.channels().get(name) or dict(sandbox.keys.paypal.settings)
        self.url, self.mistakes, self.stale_after = sandbox.url, self.channel.mistakes, self.channel.stale_after

    def settings(self, *, url: str, notify_url: str) -> Settings:
        fields = self._fields | {self.channel.field: url + self.channel.path}
        if "CLIENT_ID" not in fields:
            return fields
        return fields | {"WEBHOOK_ID": self._registered(notify_url)}

    def _registered(self, notify_url: str) -> str:
        """Register an endpoint at PayPal, which numbers it."""
        client = (self._fields["CLIENT_ID"], self._fields["CLIENT_SECRET"])
        granted = self._sandbox.http.post(
            "/paypal/v1/oauth2/token", data={"grant_type": "client_credentials"}, auth=client
        )
        answer = self._sandbox.http.post(
            "/paypal/v1/notifications/webhooks",
            json={"url": notify_url, "event_types": [{"name": "*"}]},
            headers={"Authorization": f"Bearer {granted.json()['access_token']}"},
        )
        return str(answer.raise_for_status().json()["id"])

    def pay(self, out_trade_no: str, *, copies: int = 1, mistake: str = "", late: bool = False) -> bool:
        wrong = {FAULTS[mistake]: True} if mistake else {}
        self._sandbox.reset_faults()
        self._sandbox.faults(duplicates=copies, parallel=copies, pay_closed=late, **wrong)
        return self._sandbox.http.post("/_control/pay", json={"out_trade_no": out_trade_no}).is_success

    def charge(self, out_trade_no: str) -> Charge:
        found = self._sandbox.charges()[out_trade_no]
        return Charge(
            paid_minor=found["charged_minor"],
            refunded_minor=found["refunded_minor"],
            currency=found.get("currency", "CNY"),
            merchant=found.get("seller") or self._fields.get(self.channel.merchant, "stripe"),
        )

    def dispute(self, out_trade_no: str, *, status: str) -> None:
        step = {"out_trade_no": out_trade_no, "status": status}
        self._sandbox.http.post("/_control/dispute", json=step).raise_for_status()


class Careless:
    """A provider with one mistake: `broken` replaces methods; each gets the genuine provider."""

    def __init__(self, genuine: Provider, broken: dict[str, Callable[..., Any]]) -> None:
        self._genuine, self._broken = genuine, broken

    def __getattr__(self, name: str) -> Any:
        if name in self._broken:
            return lambda **given: self._broken[name](self._genuine, **given)
        return getattr(self._genuine, name)


def careless(sound: Plugin, method: str, mistake: Callable[..., Any]) -> Plugin:
    return replace(
        sound,
        build=lambda *given: Careless(sound.build(*given), {method: mistake}),  # type: ignore[arg-type,return-value]
    )
