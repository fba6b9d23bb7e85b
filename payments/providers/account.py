"""Base of every provider: a merchant account's clock, limits and pooled HTTP client."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import Any, TypeVar, cast

import httpx

from idempotency.webhooks.verifiers import Verifier
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.actions import NOBODY, NextAction, Payer, needed_of
from payments.providers.answers import follow_up, must_match
from payments.providers.authenticity import must_be_signed, readable
from payments.providers.base import BillLine, Notice, RefundResult, RefundStatus, Trade, TradeStatus, closed_fact
from payments.providers.transport import Answer, Limits, ask, client, reading

T = TypeVar("T")

_NUMBERS = ("out_trade_no", "out_refund_no")
_TURNED_AWAY = (httpx.codes.UNAUTHORIZED, httpx.codes.TOO_MANY_REQUESTS)


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
    method: str
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
    """Merchant account; implements `Provider` by the methods that a subclass adds. Thread-safe.

    Of a provider that speaks JSON these are `open`, `find`, `end`, `give_back`, `find_refund`, `lines`, `notice`,
    and for `call` also `signed` and `refusal`. Another one overrides methods of `Provider` themselves. What cannot
    be read inside of `open` to `lines` is `OutcomeUnknown`.

    Args:
        merchant: the account, as facts name it.
        timeout_seconds: for one call in all its parts; a bill's file has `DOWNLOAD_SECONDS_MAX`.
        clock: seconds since the epoch; for tests.
        limits: around every outbound call.

    Attributes:
        url: of the API, for `call`.
        verifier: of notifications, from `idempotency.webhooks` or derived from its `Verifier`.
        unknown: codes of refusals that say that there is no trade or refund of this number.
        unfunded: the code of a refusal that says that our account has too little for a refund.
        in_use: the codes of refusals that say that a refund of this number was asked for before.
        send: sends one request, with the arguments of `httpx.Client.build_request`; raises as `transport.send`.
    """

    channel: str
    methods: tuple[str, ...]
    url: str
    verifier: Verifier
    unknown: Collection[str] = ()
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
        # a partial, no method: its holder, such as a token's fetcher, must not keep a replaced account alive
        self.send = partial(ask, self._http, limits)

    def create(self, *, method: str | None = None, payer: Payer = NOBODY, **wanted: Any) -> NextAction:
        """See `Provider.create`."""
        opening = Opening(method=self._method(method, payer), payer=payer, **self._numbered(wanted))
        with reading("payment"):
            return self.open(opening)

    def refund(self, **wanted: Any) -> RefundResult:
        """See `Provider.refund`; `unfunded` refuses as `UNFUNDED`, one of `in_use` says nothing."""
        try:
            with reading("refund"):
                return self._ours(self.give_back(Refunding(**self._numbered(wanted))))
        except ProviderRejected as refused:
            if refused.code in self.in_use:
                raise OutcomeUnknown(f"an earlier request may have moved the money: {refused}") from refused
            if self.unfunded is None or refused.code != self.unfunded:
                raise
            return RefundResult(status=RefundStatus.UNFUNDED, message=str(refused))

    def open(self, wanted: Opening, /) -> NextAction:
        """Open a trade; see `Provider.create`."""
        raise NotImplementedError

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """See `Provider.query`; `NOT_FOUND` where the provider refuses it with a code of `unknown`."""
        with reading("payment"):
            asked = partial(self.find, self.number(out_trade_no), reference)
            found = unless_refused(asked, codes=self.unknown)
            return self._ours(found) if found else Trade(status=TradeStatus.NOT_FOUND)

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """See `Provider.close`; closed where refused as `unknown`, asked about after any other."""
        try:
            with reading("payment"):
                return self._ours(self.end(self.number(out_trade_no), reference))
        except ProviderRejected as refused:
            if refused.code in self.unknown:
                return self.closed(out_trade_no)
            with follow_up():
                trade = self.query(out_trade_no=out_trade_no, reference=reference)
            if trade.status in {TradeStatus.PAID, TradeStatus.CLOSED}:
                return trade
            raise

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        """See `Provider.query_refund`; `NOT_FOUND` as of `query`."""
        asked = partial(self.find_refund, self.number(out_trade_no), self.number(out_refund_no), reference)
        with reading("refund"):
            found = unless_refused(asked, codes=self.unknown)
            return self._ours(found) if found else RefundResult(status=RefundStatus.NOT_FOUND)

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        """See `Provider.bill`."""
        with reading("bill"):
            return tuple(map(self._read, self.lines(day)))

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        """See `Provider.read_notification`; of JSON."""
        self.verify(headers, body, now)
        with readable("notification"):
            return self._ours(self.notice(json.loads(body)))

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
        """Require `verifier` to find it signed. Raises SignatureInvalid."""
        must_be_signed(self.verifier, headers, body, now)

    def capture(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """See `Provider.capture`."""
        raise NotImplementedError

    def give_back(self, wanted: Refunding, /) -> RefundResult:
        """Make a refund; see `Provider.refund`."""
        raise NotImplementedError

    def find(self, out_trade_no: str, reference: str, /) -> Trade:
        """Ask about a trade; see `Provider.query`."""
        raise NotImplementedError

    def end(self, out_trade_no: str, reference: str, /) -> Trade:
        """Close a trade; see `Provider.close`."""
        raise NotImplementedError

    def find_refund(self, out_trade_no: str, out_refund_no: str, reference: str, /) -> RefundResult:
        """Ask about a refund; see `Provider.query_refund`."""
        raise NotImplementedError

    def lines(self, day: date, /) -> Iterable[BillLine]:
        """List what moved; see `Provider.bill`."""
        raise NotImplementedError

    def notice(self, document: Any, /) -> Notice:
        """Read a genuine notification."""
        raise NotImplementedError

    def number(self, ours: str, /) -> str:
        """Write a number of ours, 32 lower-case hexadecimal digits, as the provider takes it.

        `open` to `find_refund` get numbers in this form, and what they return is read back. The form must keep all
        122 bits, as 25 letters and digits or 39 digits do; a provider that takes fewer gets a number of its own.
        """
        return ours

    def read_number(self, theirs: str, /) -> str:
        """Read a number back. Raises ValueError, or returns any text, for one that is not ours."""
        return theirs

    def signed(self, method: str, path: str, body: bytes, /) -> Mapping[str, str]:
        """Return headers that sign a call."""
        return {}

    def refusal(self, document: dict[str, Any], /) -> tuple[str, str]:
        """Read the code and the sentence of an answer with a status of 400 or more."""
        raise NotImplementedError

    def must_be_genuine(self, answer: Answer, /) -> None:
        """Require the provider to have signed an answer, where it signs any. Raises OutcomeUnknown."""

    def call(self, method: str, path: str, body: object = None, *, asked: Mapping[str, object]) -> dict[str, Any]:
        """Send JSON, `signed`, and return the answer's object, which must be about `asked`.

        Raises as `send`; ProviderRejected for a `refusal`, ProviderUnavailable for too many calls or a key that is
        not taken, OutcomeUnknown for an answer that is not genuine, no object, or about something else.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.signed(method, path, content)}
        answer = self.send(method, self.url + path, content=content, headers=headers)
        self.must_be_genuine(answer)
        if answer.status in _TURNED_AWAY:
            raise ProviderUnavailable(f"{self.channel} answered {answer.status} and read nothing")
        found = answer.document()
        if answer.status >= 400:
            with reading("refusal"):
                code, sentence = self.refusal(found)
            raise ProviderRejected(code, sentence)
        if answer.status >= 300:
            raise OutcomeUnknown(f"{self.channel} answered {answer.status}")
        self.must_match(asked, found)
        return found

    def must_match(self, asked: Mapping[str, object], answer: Mapping[str, object]) -> None:
        """Refuse an answer about something else, as `answers.must_match`."""
        must_match(self.channel, asked=asked, answer=answer)

    def closed(self, out_trade_no: str, *, currency: str = "CNY", may_yet_begin: bool = False) -> Trade:
        """State that the trade ended unpaid."""
        fact = closed_fact(
            channel=self.channel, merchant=self.merchant, out_trade_no=out_trade_no, currency=currency
        )
        return Trade(status=TradeStatus.CLOSED, facts=(fact,), may_yet_begin=may_yet_begin)

    def _numbered(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.number(value) if name in _NUMBERS else value for name, value in wanted.items()}

    def _ours(self, found: T) -> T:
        """Read back the numbers of what was said about a trade or refund, and of its facts."""
        said: Any = self._read(found)
        more = {"refund": self._read(said.refund)} if isinstance(said, Notice) and said.refund else {}
        return cast("T", replace(said, facts=tuple(map(self._read, said.facts)), **more))

    def _read(self, found: T) -> T:
        said: Any = found
        ours: dict[str, str] = {}
        for value in filter(None, (getattr(said, name, "") for name in _NUMBERS)):
            with suppress(ValueError):  # of another system of the account, or of a person
                ours[value] = self.read_number(value)
        # the last three hold our number of what the provider does not number
        names = (*_NUMBERS, "provider_txn_id", "paid_txn_id", "takes_back")
        read = {name: ours[value] for name in names if (value := getattr(said, name, "")) in ours}
        return cast("T", replace(said, **read))

    def _method(self, wanted: str | None, payer: Payer) -> str:
        """Return `wanted`, or the channel's first method; raises as `Provider.create`."""
        chosen = next((one for one in self.methods if wanted in {None, one}), None)
        if chosen is None:
            raise ValueError(f"{wanted!r} is not one of {', '.join(self.methods)}")
        needed_of(chosen, payer)
        return chosen


def unless_refused(call: Callable[[], T], *, codes: Collection[str]) -> T | None:
    """Return the answer of `call`; None where it is refused with one of `codes`."""
    try:
        return call()
    except ProviderRejected as refused:
        if refused.code in codes:
            return None
        raise
