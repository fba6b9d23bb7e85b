"""Genuine answers about another trade, refund or amount: they are no word about ours."""

import copy
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from payments.errors import OutcomeUnknown
from payments.providers.actions import PayMethod
from payments.providers.answers import MISMATCHED
from payments.providers.base import Provider, RefundStatus
from tests.unit.payments.providers.conftest import (
    NUMBER,
    Answer,
    Company,
    Says,
    alipay_says,
    create,
    refund,
    signed,
    stripe_lists,
    stripe_says,
)
from tests.unit.payments.providers.conftest import REFUND_NUMBER as REFUND
from tests.unit.payments.providers.test_answers import AMOUNT, NUMBERS, PAID, REFUNDED
from tests.unit.payments.providers.test_stripe_answers import INTENT as SUCCEEDED
from tests.unit.payments.providers.test_stripe_answers import MADE

Document = dict[str, Any]

OTHER = "f" * 32


def alipay(method: str) -> Callable[[Document], Says]:
    return lambda document: alipay_says(method, {"code": "10000", **document})


@dataclass(frozen=True, kw_only=True)
class Exchange:
    channel: str
    call: str
    document: Document  # about ours
    says: Callable[[Document], Says]
    compared: tuple[str, ...]  # members that must be ours, dotted
    before: Callable[[], list[Says]] = list  # answers of the calls that it makes first


ALIPAY_TRADE = {"out_trade_no": NUMBER, "trade_no": "20", "total_amount": "19.90"}
ALIPAY_REFUND = {
    **ALIPAY_TRADE,
    "out_request_no": REFUND,
    "refund_amount": "9.90",
    "refund_status": "REFUND_SUCCESS",
}
ACTION = {"type": "redirect_to_url", "redirect_to_url": {"url": "https://x"}}
INTENT = {**SUCCEEDED, "status": "requires_action", "next_action": ACTION}
STRIPE_REFUND = {**MADE, "payment_intent": INTENT, "metadata": NUMBERS}


def exchanges() -> Iterator[Exchange]:
    wechat: dict[str, Any] = {"channel": "wechat", "says": signed}
    yield Exchange(call="query", document={**PAID, "amount": AMOUNT}, compared=("out_trade_no",), **wechat)
    amounts = ("amount.refund", "amount.total", "amount.currency")
    yield Exchange(call="refund", document=REFUNDED, compared=(*NUMBERS, *amounts), **wechat)
    yield Exchange(call="query_refund", document=REFUNDED, compared=(*NUMBERS,), **wechat)
    yield from _alipay_exchanges()
    yield from _stripe_exchanges()


def _alipay_exchanges() -> Iterator[Exchange]:
    ours = {"channel": "alipay", "compared": ("out_trade_no",)}
    code = {"out_trade_no": NUMBER, "qr_code": "https://qr.alipay.com/bax0"}
    yield Exchange(call="create", document=code, says=alipay("alipay.trade.precreate"), **ours)
    yield Exchange(call="close", document=ALIPAY_TRADE, says=alipay("alipay.trade.close"), **ours)
    trade = {**ALIPAY_TRADE, "trade_status": "TRADE_SUCCESS"}
    yield Exchange(call="query", document=trade, says=alipay("alipay.trade.query"), **ours)
    made = {**ALIPAY_TRADE, "fund_change": "Y", "refund_fee": "9.90"}
    yield Exchange(call="refund", document=made, says=alipay("alipay.trade.refund"), **ours)
    asked = {
        "channel": "alipay",
        "document": ALIPAY_REFUND,
        "says": alipay("alipay.trade.fastpay.refund.query"),
        "compared": ("out_trade_no", "out_request_no"),
    }
    yield Exchange(call="query_refund", **asked)
    taken = {**ALIPAY_TRADE, "fund_change": "N"}
    yield Exchange(call="refund", before=lambda: [alipay("alipay.trade.refund")(taken)], **asked)


def _stripe_exchanges() -> Iterator[Exchange]:
    number = "metadata.out_trade_no"
    of_refund = (number, "metadata.out_refund_no", "amount", "currency", "payment_intent.id")
    intent = {"channel": "stripe", "document": INTENT, "says": stripe_says}
    back = {"channel": "stripe", "document": STRIPE_REFUND}
    yield Exchange(call="create", compared=(number, "amount", "currency"), **intent)
    yield Exchange(call="query", compared=(number, "id"), **intent)
    canceled = {**intent, "document": {**INTENT, "status": "canceled"}}
    yield Exchange(call="close", compared=(number, "id"), before=lambda: [stripe_says(INTENT)], **canceled)
    # our numbers have no age here, so an earlier refund is looked for first
    yield Exchange(call="refund", compared=of_refund, says=stripe_says, before=lambda: [stripe_lists()], **back)
    by_number = tuple(name for name in of_refund if name != "metadata.out_refund_no")
    yield Exchange(call="refund", compared=by_number, says=stripe_lists, **back)
    yield Exchange(call="query_refund", compared=(number, "payment_intent.id"), says=stripe_lists, **back)
    yield Exchange(call="search", compared=(number,), says=stripe_lists, channel="stripe", document=INTENT)


EXCHANGES = list(exchanges())
OTHERS: dict[str, Any] = {
    "amount": 991,
    "currency": "usd",
    "amount.refund": 991,
    "amount.total": 1991,
    "amount.currency": "USD",
}


def changed(document: Document, member: str, *, missing: bool) -> Document:
    made = copy.deepcopy(document)
    *way, name = member.split(".")
    part = made
    for step in way:
        part = part[step]
    part[name] = OTHERS.get(member, OTHER)
    if missing:
        del part[name]
    return made


def run(provider: Provider, exchange: Exchange, company: Company, document: Document) -> Any:
    steps = [*exchange.before(), exchange.says(document)]

    def answer(body: bytes) -> Answer:
        return steps.pop(0)(body)

    company.answer = answer
    trade = {"out_trade_no": NUMBER, "reference": "pi_1"}
    if exchange.call == "create":
        return create(provider, method=PayMethod.PRECREATE if exchange.channel == "alipay" else None)
    if exchange.call == "search":  # by a number that has no age, where no reference is known
        return provider.query(out_trade_no=NUMBER)
    if exchange.call == "query_refund":
        return provider.query_refund(out_refund_no=REFUND, **trade)
    if exchange.call == "refund":
        return refund(provider, reference="pi_1")
    return getattr(provider, exchange.call)(**trade)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: f"{one.channel}-{one.call}")
def test_an_answer_about_ours_counts_and_one_about_another_is_unreadable(
    providers: dict[str, Any], company: Company, exchange: Exchange, caplog: pytest.LogCaptureFixture
) -> None:
    provider, counted = providers[exchange.channel], MISMATCHED.labels(exchange.channel)._value
    run(provider, exchange, company, exchange.document)
    for member in exchange.compared:
        for missing in (False, True):
            if missing and member.endswith("currency"):  # one of WeChat's that names none is in CNY
                continue
            before = counted.get()
            caplog.clear()
            with caplog.at_level(logging.ERROR), pytest.raises(OutcomeUnknown, match="not about what was asked"):
                run(provider, exchange, company, changed(exchange.document, member, missing=missing))
            assert counted.get() == before + 1
            assert "is not about what was asked" in caplog.text


@pytest.mark.parametrize("so_far", ["9.89", "19.91", "0.01"])
def test_a_sum_of_refunds_that_cannot_hold_ours(providers: dict[str, Any], company: Company, so_far: str) -> None:
    made = {**ALIPAY_TRADE, "fund_change": "Y"}
    exchange = Exchange(
        channel="alipay", call="refund", document=made, says=alipay("alipay.trade.refund"), compared=()
    )
    for fine in ({}, {"refund_fee": "9.90"}, {"refund_fee": "19.90"}):
        assert run(providers["alipay"], exchange, company, {**made, **fine}).facts[0].amount_minor == 990
    with pytest.raises(OutcomeUnknown, match="not about what was asked"):
        run(providers["alipay"], exchange, company, {**made, "refund_fee": so_far})


@pytest.mark.parametrize(
    "said", [{}, {"out_trade_no": NUMBER}, {"out_trade_no": NUMBER, "out_request_no": REFUND}]
)
def test_an_unknown_refund_need_not_be_named(providers: dict[str, Any], company: Company, said: Document) -> None:
    query = {"channel": "alipay", "call": "query_refund", "says": alipay("alipay.trade.fastpay.refund.query")}
    exchange = Exchange(document=said, compared=(), **query)
    assert run(providers["alipay"], exchange, company, said).status is RefundStatus.NOT_FOUND
    with pytest.raises(OutcomeUnknown, match="not about what was asked"):
        run(providers["alipay"], exchange, company, {**said, "out_trade_no": OTHER})
