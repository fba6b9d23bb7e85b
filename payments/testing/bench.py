"""Bench of a case: a plug-in's provider, its simulator, a relay between, a shopper."""

import queue
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

import httpx

from idempotency.ids import new_id
from payments.providers.account import Account
from payments.providers.actions import NextAction
from payments.providers.authenticity import lower_case
from payments.providers.base import (
    Fact,
    FactKind,
    Notice,
    Provider,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
)
from payments.providers.disputes import DisputeStatus
from payments.providers.plugin import Capability, Plugin, Refusal
from payments.providers.settings_fields import Settings
from payments.testing.relay import SECONDS_MAX, Endpoint, Relay, Reply
from payments.testing.verdicts import Broken, Skipped, must
from payments.testing.watched import Watched

AMOUNT_MINOR = 1990
PART_MINOR = 990
COPIES = 3
Form = Callable[[str], str]
MOVED = (RefundStatus.SUCCEEDED, RefundStatus.PROCESSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Money that really moved, in the simulator's books; in minor units, 0 while none did."""

    paid_minor: int
    refunded_minor: int
    currency: str
    merchant: str


class Simulator(Protocol):
    """The provider's side of a certification: it plays the provider, and the shopper.

    Attributes:
        url: where it listens.
        mistakes: what `pay` can get wrong, of ``amount``, ``currency``, ``merchant``.
        stale_after: the age at which a notification is refused; None where it carries no signed time.
    """

    url: str
    mistakes: frozenset[str]
    stale_after: timedelta | None

    def settings(self, *, url: str, notify_url: str) -> Settings:
        """Return settings of an account.

        Args:
            url: to reach the provider at, instead of `self.url`.
            notify_url: where the account's notifications go, if they don't go to the `notify_url` of `create`.
        """

    def pay(self, out_trade_no: str, *, copies: int = 1, mistake: str = "", late: bool = False) -> bool:
        """Pay as the shopper; each of `copies` notifications is sent until acknowledged.

        Args:
            late: as a payment that was on its way when the trade was closed.

        Returns:
            False if the trade cannot be paid (any more).
        """

    def charge(self, out_trade_no: str) -> Charge:
        """Return what was charged and given back."""

    def dispute(self, out_trade_no: str, *, status: DisputeStatus) -> None:
        """Dispute all of a payment, or end that; called only with `Capability.DISPUTE`."""


@dataclass(slots=True)
class Opened:
    """A trade that a case opened."""

    number: str
    currency: str
    action: NextAction | None = None
    wanted: dict[str, Any] = field(default_factory=dict)
    charged_as: str = ""  # the provider's number of its payment, by which a dispute may name it

    @property
    def names(self) -> dict[str, str]:
        return {"out_trade_no": self.number, "reference": self.action.reference if self.action else ""}


@dataclass(frozen=True, slots=True)
class Received:
    """A notification as it came, and as the plug-in read it."""

    headers: dict[str, str]
    body: bytes
    notice: Notice

    def fact(self, kind: FactKind = FactKind.PAID) -> Fact:
        return next(fact for fact in self.notice.facts if fact.kind is kind)


class Bench:
    """Plug-in under certification."""

    def __init__(self, plugin: Plugin, simulator: Simulator) -> None:
        self.plugin = plugin
        self.copies_of: Counter[str] = Counter()  # of the notifications that came, by our number
        self.relay = Relay(simulator.url)
        self.endpoint = Endpoint(self.acknowledgement(None))
        settings = simulator.settings(url=self.relay.url, notify_url=self.endpoint.url)
        built = plugin.build(settings, nullcontext)
        self.number: Form = built.number if isinstance(built, Account) else str
        self.read_number: Form = built.read_number if isinstance(built, Account) else str
        self.provider = cast("Provider", Watched(built))
        self.simulator = simulator  # asked by our numbers in the provider's form

    def close(self) -> None:
        self.relay.stop()
        self.endpoint.stop()

    def acknowledgement(self, refused: Refusal | None) -> Reply:
        """Return the plug-in's answer to a notification, as it travels."""
        said = self.plugin.acknowledge(refused)
        headers = {**said.headers, "Content-Type": said.content_type}
        return Reply(status=said.status, body=said.body.encode(), headers=headers)

    def can(self, capability: Capability) -> bool:
        return capability in self.plugin.capabilities

    def needs(self, capability: Capability) -> None:
        """Skip the rest of the case where the channel cannot do this."""
        if not self.can(capability):
            raise Skipped(f"the channel has no {capability.value}")

    @property
    def part_minor(self) -> int:
        """A part of `AMOUNT_MINOR`; all of it where the channel gives back no part."""
        return PART_MINOR if self.can(Capability.PARTIAL_REFUND) else AMOUNT_MINOR

    def new(self) -> Opened:
        """Think of a trade; nobody has heard of it yet."""
        currencies = self.provider.currencies
        made = Opened(new_id().hex, "CNY" if "CNY" in currencies else min(currencies))
        made.wanted = {
            "out_trade_no": made.number,
            "amount_minor": AMOUNT_MINOR,
            "currency": made.currency,
            "description": "杯子 & more",
            "notify_url": self.endpoint.url,
            "return_url": f"{self.endpoint.url}/back",
            "expires_at": datetime.now(UTC) + timedelta(minutes=30),
        }
        return made

    def create(self, trade: Opened) -> NextAction:
        """Open it at the provider, and follow the shopper's link."""
        trade.action = action = self.provider.create(**trade.wanted)
        renderer = self.plugin.renderer(action.type)
        if renderer and renderer.redirects:
            httpx.get(action.url, follow_redirects=True, timeout=SECONDS_MAX, trust_env=False)
        return action

    def opened(self) -> Opened:
        trade = self.new()
        self.create(trade)
        return trade

    def shopper_pays(self, trade: Opened, **how: Any) -> bool:
        """Pay as the shopper; arguments and result as of `Simulator.pay`."""
        return self.simulator.pay(self.number(trade.number), **how)

    def pay(self, trade: Opened, **how: Any) -> None:
        """Pay a trade that was just opened."""
        must(self.shopper_pays(trade, **how), "its trade, just opened, cannot be paid")

    def charge(self, trade: Opened) -> Charge:
        """Return what was really charged and given back."""
        return self.simulator.charge(self.number(trade.number))

    def refunded(self, trade: Opened) -> int:
        return self.charge(trade).refunded_minor

    def dispute(self, trade: Opened, status: DisputeStatus) -> None:
        self.simulator.dispute(self.number(trade.number), status=status)

    def paid(self, **how: Any) -> Opened:
        """Open a trade that the shopper pays, and capture it where the provider waits for that."""
        trade = self.opened()
        self.pay(trade, **how)
        self.take(trade)
        return trade

    def take(self, trade: Opened) -> Trade:
        """Query, and capture what the shopper has approved."""
        asked = self.query(trade)
        return self.provider.capture(**trade.names) if asked.status is TradeStatus.APPROVED else asked

    def query(self, trade: Opened) -> Trade:
        return self.provider.query(**trade.names)

    def close_trade(self, trade: Opened) -> Trade:
        self.needs(Capability.CLOSE)
        return self.provider.close(**trade.names)

    def refund(self, trade: Opened, number: str, amount_minor: int = AMOUNT_MINOR) -> RefundResult:
        self.needs(Capability.REFUND)
        if amount_minor < AMOUNT_MINOR:
            self.needs(Capability.PARTIAL_REFUND)
        return self.provider.refund(
            **trade.names,
            out_refund_no=number,
            amount_minor=amount_minor,
            paid_minor=AMOUNT_MINOR,
            currency=trade.currency,
            reason="changed mind",
            notify_url=self.endpoint.url,
        )

    def query_refund(self, trade: Opened, number: str) -> RefundResult:
        self.needs(Capability.REFUND)
        return self.provider.query_refund(**trade.names, out_refund_no=number)

    def paid_fact(self, trade: Opened) -> Fact:
        """Return the one payment that a query states."""
        facts = [fact for fact in self.query(trade).facts if fact.kind is FactKind.PAID]
        must(len(facts) == 1, f"the query of a paid trade states {len(facts)} payments")
        return facts[0]

    def received(self, trade: Opened, *kinds: FactKind) -> Received:
        """Wait for a notification about the trade, of a payment or of these kinds; skip others.

        Of its headers the plug-in gets those that it names: no other one is stored.
        """
        kinds = kinds or (FactKind.PAID,)
        while True:
            try:
                headers, body = self.endpoint.next()
            except queue.Empty:
                raise Broken(f"no {kinds[0].value} notification came within {SECONDS_MAX:.0f} s") from None
            given = lower_case(headers)
            named = {name: given[name.lower()] for name in self.plugin.headers if name.lower() in given}
            notice = self.read(named, body)
            facts = [fact for fact in notice.facts if fact.kind in kinds]
            self.copies_of.update({fact.out_trade_no for fact in facts})
            if any(
                trade.number == fact.out_trade_no or trade.charged_as == fact.paid_txn_id != "" for fact in facts
            ):
                return Received(named, body, notice)

    def read(self, headers: Mapping[str, str], body: bytes, *, age: timedelta = timedelta()) -> Notice:
        """Let the plug-in read it as if it arrived `age` later."""
        before = self.relay.calls
        notice = self.provider.read_notification(headers=headers, body=body, now=datetime.now(UTC) + age)
        must(self.relay.calls == before, "the provider is called to read a notification; what it says must do")
        return notice
