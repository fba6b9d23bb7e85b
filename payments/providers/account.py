"""Base of every provider: one merchant account's clock, limits and pooled HTTP client."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from typing import TypedDict, TypeVar

from payments.errors import ProviderRejected
from payments.providers.answers import follow_up, must_match
from payments.providers.base import (
    NEEDED,
    NOBODY,
    Fact,
    Payer,
    PayMethod,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
    closed_fact,
)
from payments.providers.transport import Limits, client

T = TypeVar("T")


class Options(TypedDict, total=False):
    """Settings of an account's calls.

    Attributes:
        timeout_seconds: for one call in all its parts; a bill's file has `DOWNLOAD_SECONDS_MAX`.
        clock: seconds since the epoch; for tests.
        limits: around every outbound call.
    """

    timeout_seconds: float
    clock: Callable[[], float]
    limits: Limits


class Account:
    """One merchant account. Thread-safe.

    Args:
        merchant: the account, as facts name it.
    """

    channel: str
    methods: tuple[PayMethod, ...]

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

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """See `Provider.query`."""
        raise NotImplementedError

    def _method(self, wanted: str | None, payer: Payer = NOBODY) -> PayMethod:
        """Return `wanted`, or the channel's first method.

        Raises:
            ValueError: the channel has no such method, or `payer` lacks what the method needs.
        """
        chosen = next((one for one in self.methods if wanted in {None, one}), None)
        if chosen is None:
            raise ValueError(f"{wanted!r} is not one of {', '.join(self.methods)}")
        needed = NEEDED.get(chosen)
        if needed and not getattr(payer, needed):
            raise ValueError(f"{chosen.value} needs the payer's {needed}")
        return chosen

    def _must_match(self, asked: Mapping[str, object], answer: Mapping[str, object]) -> None:
        must_match(self.channel, asked=asked, answer=answer)

    def _closed_fact(self, out_trade_no: str) -> Fact:
        return closed_fact(channel=self.channel, merchant=self.merchant, out_trade_no=out_trade_no)

    def _closed(self, out_trade_no: str, *, may_yet_begin: bool = False) -> Trade:
        facts = (self._closed_fact(out_trade_no),)
        return Trade(status=TradeStatus.CLOSED, facts=facts, may_yet_begin=may_yet_begin)

    def _after_refused_close(self, refused: ProviderRejected, out_trade_no: str) -> Trade:
        """Query a trade that could not be closed: paid, or closed before.

        Raises:
            ProviderRejected: it is neither, so the refusal stands.
        """
        with follow_up():
            trade = self.query(out_trade_no=out_trade_no)
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


def unfunded_if(refused: ProviderRejected, *, code: str) -> RefundResult:
    """Turn the refusal `code` into `UNFUNDED`; raise any other."""
    if refused.code != code:
        raise refused
    return RefundResult(status=RefundStatus.UNFUNDED, message=str(refused))
