"""Provider under certification whose every answer is read, whatever the case asks for."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from payments.providers.actions import NextAction
from payments.providers.base import (
    BillLine,
    Fact,
    FactKind,
    Notice,
    Provider,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
)
from payments.providers.documents import NUMBER_MAX
from payments.testing.verdicts import must

_RETURNED: dict[str, type[Any]] = {
    **dict.fromkeys(("query", "capture", "close"), Trade),
    **dict.fromkeys(("refund", "query_refund"), RefundResult),
    **{"create": NextAction, "read_notification": Notice, "bill": tuple},
}
_STATUSES: dict[type[Any], type[Any]] = {Trade: TradeStatus, RefundResult: RefundStatus}


class Watched:
    """A provider whose every answer must be one that the engine can store."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._provider, name)
        return partial(_read, name, member) if name in _RETURNED else member


def _read(method: str, call: Callable[..., Any], /, **given: Any) -> Any:
    """Return the answer of `call`. Raises Broken, naming the method."""
    answer = call(**given)
    must_be(answer, _RETURNED[method], f"{method}: its answer")
    if method == "bill":
        for line in answer:
            must_be(line, BillLine, "bill: its line")
            _must_be_money(line, "bill: its line")
    elif method == "create":
        must(not answer.url or isinstance(answer.url, str), "create: its url must be a text")
    else:
        _must_be_facts(answer, method)
    return answer


def _must_be_facts(answer: Any, method: str) -> None:
    if (statuses := _STATUSES.get(type(answer))) is not None:
        must_be(answer.status, statuses, f"{method}: its status")
    must_be(answer.facts, tuple, f"{method}: its facts")
    for fact in answer.facts:
        must_be(fact, Fact, f"{method}: its fact")
        _must_be_money(fact, f"{method}: its fact")
        for name in ("channel", "merchant"):
            must(bool(getattr(fact, name)), f"{method}: its fact's {name} is empty")


def _must_be_money(moved: Any, what: str) -> None:
    """Require the members that facts and lines share to be what their columns hold."""
    must_be(moved.kind, FactKind, f"{what}'s kind")
    amount, kind = moved.amount_minor, type(moved.amount_minor).__name__
    must(kind == "int", f"{what}'s amount must be an int of minor units, not a {kind}")
    least = 0 if moved.kind is FactKind.CLOSED else 1
    must(amount >= least, f"{what}'s amount is {amount}; what moves is above zero, whatever its direction")
    for name in ("out_trade_no", "provider_txn_id", "out_refund_no", "paid_txn_id", "currency"):
        text = getattr(moved, name)
        must_be(text, str, f"{what}'s {name}")
        must(len(text) <= NUMBER_MAX, f"{what}'s {name} has more than {NUMBER_MAX} characters")
    must(bool(moved.provider_txn_id), f"{what}'s provider_txn_id is empty")
    must(is_currency(moved.currency), f"{what}'s currency must be three capitals, not {moved.currency!r}")
    when = moved.occurred_at
    if when is not None:
        must_be(when, datetime, f"{what}'s time")
        must(when.tzinfo is not None, f"{what}'s time has no zone")


def is_currency(text: str) -> bool:
    """Check that it looks like one of ISO 4217."""
    return len(text) == 3 and text.isascii() and text.isalpha() and text.isupper()


def must_be(value: object, kind: type[Any], what: str) -> None:
    """Require a type. Raises Broken."""
    found = type(value).__name__
    must(isinstance(value, kind), f"{what} must be a {kind.__name__}, not a {found}")
