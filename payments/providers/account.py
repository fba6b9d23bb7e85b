"""Base of every provider: one merchant account's clock, limits and pooled HTTP client."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from payments.errors import OutcomeUnknown, ProviderRejected
from payments.providers.actions import NEEDED, NOBODY, NextAction, Payer, PayMethod
from payments.providers.answers import follow_up, must_match
from payments.providers.base import RefundResult, RefundStatus, Trade, TradeStatus, closed_fact
from payments.providers.transport import Answer, Limits, ask, client

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Arguments of `Provider.create`; `method` is one of the account's."""

    out_trade_no: str
    amount_minor: int
    currency: str
    description: str
    notify_url: str
    return_url: str
    expires_at: datetime
    method: PayMethod
    payer: Payer


@dataclass(frozen=True, slots=True, kw_only=True)
class Refunding:
    """Arguments of `Provider.refund`."""

    out_trade_no: str
    out_refund_no: str
    amount_minor: int
    paid_minor: int
    currency: str
    reason: str
    notify_url: str
    reference: str = ""


class Account:
    """One merchant account. Thread-safe; a subclass adds the rest of `Provider`.

    Args:
        merchant: the account, as facts name it.
        timeout_seconds: for one call in all its parts; a bill's file has `DOWNLOAD_SECONDS_MAX`.
        clock: seconds since the epoch; for tests.
        limits: around every outbound call.

    Attributes:
        unfunded: the code of a refusal that says that our account has too little for a refund.
        in_use: the codes of refusals that say that a refund of this number was asked for before.
        send: sends one request, with the arguments of `httpx.Client.build_request`; raises as `transport.send`.
    """

    channel: str
    methods: tuple[PayMethod, ...]
    unfunded: str | None = None
    in_use: Collection[str] = ()
    send: Callable[..., Answer]

    def __init__(
        self,
        merchant: str,
        *,
        timeout_seconds: float = 5.0,
        clock: Callable[[], float] = time.time,
        limits: Limits = nullcontext,
    ) -> None:
        self.merchant = merchant
        self._clock = clock
        self._limits = limits
        self._http = client(timeout_seconds=timeout_seconds)
        # no method: what holds it, as a token's fetcher does, must not keep an account that was built again
        self.send = partial(ask, self._http, limits)

    def create(self, *, method: str | None = None, payer: Payer = NOBODY, **wanted: Any) -> NextAction:
        """See `Provider.create`."""
        return self.open(Opening(method=self._method(method, payer), payer=payer, **wanted))

    def refund(self, **wanted: Any) -> RefundResult:
        """See `Provider.refund`; a refusal by `unfunded` is `UNFUNDED`, one of `in_use` says nothing."""
        try:
            return self.give_back(Refunding(**wanted))
        except ProviderRejected as refused:
            if refused.code in self.in_use:
                raise OutcomeUnknown(f"an earlier request may have moved the money: {refused}") from refused
            if refused.code != self.unfunded:
                raise
            return RefundResult(status=RefundStatus.UNFUNDED, message=str(refused))

    def open(self, wanted: Opening) -> NextAction:
        """Open a trade; see `Provider.create`."""
        raise NotImplementedError

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """See `Provider.query`."""
        raise NotImplementedError

    def capture(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """See `Provider.capture`."""
        raise NotImplementedError

    def give_back(self, wanted: Refunding) -> RefundResult:
        """Make a refund; see `Provider.refund`."""
        raise NotImplementedError

    def must_match(self, asked: Mapping[str, object], answer: Mapping[str, object]) -> None:
        """Refuse an answer about something else, as `answers.must_match`."""
        must_match(self.channel, asked=asked, answer=answer)

    def closed(self, out_trade_no: str, *, currency: str = "CNY", may_yet_begin: bool = False) -> Trade:
        """State that the trade ended unpaid."""
        fact = closed_fact(
            channel=self.channel, merchant=self.merchant, out_trade_no=out_trade_no, currency=currency
        )
        return Trade(status=TradeStatus.CLOSED, facts=(fact,), may_yet_begin=may_yet_begin)

    def _method(self, wanted: str | None, payer: Payer) -> PayMethod:
        """Return `wanted`, or the channel's first method; raises as `Provider.create`."""
        chosen = next((one for one in self.methods if wanted in {None, one}), None)
        if chosen is None:
            raise ValueError(f"{wanted!r} is not one of {', '.join(self.methods)}")
        needed = NEEDED.get(chosen)
        if needed and not getattr(payer, needed):
            raise ValueError(f"{chosen} needs the payer's {needed}")
        return chosen

    def _after_refused_close(self, refused: ProviderRejected, out_trade_no: str, reference: str = "") -> Trade:
        """Query a trade that could not be closed: paid, or closed before; else raise the refusal."""
        with follow_up():
            trade = self.query(out_trade_no=out_trade_no, reference=reference)
        if trade.status in {TradeStatus.PAID, TradeStatus.CLOSED}:
            return trade
        raise refused


def unless_refused(call: Callable[[], T], *, codes: Collection[str]) -> T | None:
    """Return the answer of `call`; None where it is refused with one of `codes`."""
    try:
        return call()
    except ProviderRejected as refused:
        if refused.code in codes:
            return None
        raise
