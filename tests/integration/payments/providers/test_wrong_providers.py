"""A provider that is wrong once is refused by a sentence that says where."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from idempotency.ids import new_id
from payments.errors import OutcomeUnknown, ProviderError, ProviderRejected, ProviderUnavailable
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
from payments.providers.plugin import Acknowledgement, Plugin, Refusal
from payments.testing import NotCertified, certify
from tests.integration.payments.providers.careless import SandboxSide, careless
from tests.integration.payments.providers.conftest import refund
from tests.sandbox import Sandbox

Answered = Trade | RefundResult | Notice


def changed(method: str, **members: Any) -> Callable[..., Answered]:
    """A method whose facts have other members; a function is given the genuine one."""

    def mistaken(genuine: Provider, **given: Any) -> Answered:
        answer: Answered = getattr(genuine, method)(**given)
        return replace(answer, facts=tuple(_with(fact, members) for fact in answer.facts))

    return mistaken


def _with(found: Any, members: dict[str, Any]) -> Any:
    made = {name: new(getattr(found, name)) if callable(new) else new for name, new in members.items()}
    return replace(found, **made)


def without_zone(moment: Any) -> Any:
    return moment and moment.replace(tzinfo=None)


def unreferenced(genuine: Provider, *, out_trade_no: str, reference: str = "") -> Trade:
    return genuine.query(out_trade_no=out_trade_no, reference="")


def capturing(genuine: Provider, **given: Any) -> Trade:
    return genuine.capture(**given)


def closing_all(genuine: Provider, **given: Any) -> Trade:
    genuine.close(**given)
    return genuine.closed(given["out_trade_no"])  # type: ignore[attr-defined,no-any-return]


def twice(genuine: Provider, **given: Any) -> tuple[BillLine, ...]:
    return genuine.bill(**given) * 2


def in_texts(genuine: Provider, **given: Any) -> tuple[BillLine, ...]:
    return tuple(_with(line, {"amount_minor": str}) for line in genuine.bill(**given))


def renamed(genuine: Provider, **given: Any) -> Notice:
    return replace(genuine.read_notification(**given), notification_id=new_id().hex)


def in_words(genuine: Provider, **given: Any) -> Any:
    trade = genuine.query(**given)
    return replace(trade, status=str(trade.status))  # type: ignore[arg-type]


def listed(genuine: Provider, **given: Any) -> Any:
    trade = genuine.query(**given)
    return replace(trade, facts=list(trade.facts))  # type: ignore[arg-type]


def leaking(genuine: Provider, **given: Any) -> Trade:
    try:
        return genuine.query(**given)
    except OutcomeUnknown as unknown:
        if "no answer from" not in str(unknown):
            raise
        raise httpx.ReadError("the connection was reset") from None


def remembering(genuine: Provider, *, out_trade_no: str, **given: Any) -> Trade:
    """Asks for what the thread that came last has asked for."""
    remembering.number = out_trade_no  # type: ignore[attr-defined]
    remembering.asked(timeout=0.2)  # type: ignore[attr-defined]
    return genuine.query(out_trade_no=remembering.number, **given)  # type: ignore[attr-defined]


remembering.asked = threading.Event().wait  # type: ignore[attr-defined]


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


def unnumbered(genuine: Provider, **given: Any) -> Notice:
    return replace(genuine.read_notification(**given), notification_id="1")


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


def unreachable(genuine: Provider, **given: Any) -> RefundResult:
    try:
        return genuine.refund(**given)
    except ProviderRejected as refused:
        raise ProviderUnavailable(str(refused)) from None


def asking(genuine: Provider, **given: Any) -> Notice:
    notice = genuine.read_notification(**given)
    genuine.query(out_trade_no=notice.facts[0].out_trade_no)
    return notice


def unwritten(genuine: Provider, **given: Any) -> RefundResult:
    raise NotImplementedError


def again(genuine: Provider, **given: Any) -> RefundResult:
    return genuine.refund(**{**given, "out_refund_no": new_id().hex})


def giving(genuine: Provider, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
    return refund(genuine, out_trade_no, out_refund_no, 990, reference=reference)  # type: ignore[no-any-return]


def for_good(genuine: Provider, **given: Any) -> Trade:
    genuine.close(**given)
    return Trade(status=TradeStatus.CLOSED)


def forgetful(genuine: Provider, *, out_trade_no: str, reference: str = "") -> Trade:
    """Closes a trade for us, and not there."""
    given = {"channel": genuine.channel, "merchant": genuine.merchant, "out_trade_no": out_trade_no}
    return Trade(status=TradeStatus.CLOSED, facts=(closed_fact(**given),))


def breaks(plugin: Plugin, sandbox: Sandbox, *, case: str, channel: str = "wechat") -> str:
    """Certify a plugin that fails in the case; the sentence for its author."""
    with pytest.raises(NotCertified, match=f"^{case}: ") as found:
        certify(plugin, SandboxSide(channel, sandbox), only=(case,))
    return found.value.certificate.broken[case]


OF_WECHAT: list[tuple[str, str, Callable[..., Any], str]] = [
    ("refunds", "query_refund", changed("query_refund", out_refund_no=""), "carry our number of it"),
    ("after close", "close", closing_all, "money after a close must make it PAID"),
    ("a bill", "bill", twice, "the bill lists a line more than once"),
    ("a bill", "bill", in_texts, "bill: its line's amount must be an int of minor units, not a str"),
    ("duplicates", "read_notification", renamed, "copies of a notification have different ids"),
    ("a payment", "query", changed("query", occurred_at=without_zone), "its fact's time has no zone"),
    ("refunds", "refund", changed("refund", amount_minor=str), "an int of minor units, not a str"),
    ("duplicates", "read_notification", changed("read_notification", amount_minor=str), "an int of minor units"),
    ("a payment", "query", in_words, "query: its status must be a TradeStatus, not a str"),
    ("a payment", "query", listed, "query: its facts must be a tuple, not a list"),
    ("a payment", "query", changed("query", currency="cny"), "currency must be three capitals, not 'cny'"),
    ("foreign answers", "query", leaking, "query raised ReadError after no answer"),
    ("parallel", "query", remembering, "threads that ask about different trades get each other's"),
    ("reordered", "read_notification", unnumbered, "a refund's notification has the id of the payment's"),
    ("parallel", "refund", again, "one refund, asked for by several threads, moved money twice"),
    ("refunds", "refund", again, "the same refund, asked for twice, moved money twice"),
    ("asking moves nothing", "query_refund", giving, "a question moved money"),
    (
        "refunds",
        "query_refund",
        changed("query_refund", provider_txn_id="1"),
        "two refunds have one `provider_txn_id`",
    ),
    ("refunds", "refund", unreachable, "a refund that is refused raises ProviderUnavailable"),
    ("refunds", "query_refund", unwritten, "NotImplementedError: in unwritten"),
    ("duplicates", "read_notification", asking, "the provider is called to read a notification"),
    ("refunds", "query_refund", changed("query_refund", is_whole=True), "state its own amount, not a sum"),
    ("a payment", "query", changed("query", provider_txn_id="1"), "two payments have one `provider_txn_id`"),
    ("delayed", "query", changed("query", provider_txn_id="another"), "it would count twice"),
    ("early", "query", changed("query", provider_txn_id="another"), "an early notification states another fact"),
    ("after close", "close", for_good, "closing an unpaid trade must be CLOSED with its fact"),
    ("wrong amount", "query", changed("query", amount_minor=1990), "the amount that was asked, not what was"),
    ("wrong currency", "query", changed("query", currency="CNY"), "the currency that was asked, not what was"),
    ("wrong merchant", "read_notification", always_ours, "the money went to another merchant"),
    ("wrong number", "query", hopeful, "query returned not_found after an answer about another number"),
    ("answers lost", "refund", credulous, "refund returned although its answer was lost"),
    ("refused questions", "query", hopeful, "query returned not_found after a bare 500"),
    ("forged", "read_notification", unverified, "a notification that was changed on the way was taken"),
    ("stale", "read_notification", never_stale, "a notification signed 300 s ago was taken"),
    ("foreign answers", "query", hopeful, "query returned not_found after a 200 with <html>"),
    ("a bill", "bill", lambda genuine, **given: (), "the bill lists []"),
]


@pytest.mark.parametrize(
    ("channel", "case", "method", "mistake", "sentence"),
    [
        *(("wechat", *row) for row in OF_WECHAT),
        ("paypal", "a payment", "query", unreferenced, "a paid trade must be PAID"),
        ("paypal", "asking moves nothing", "query", capturing, "a question moved money"),
        ("paypal", "a void", "close", forgetful, "a trade that was let go must stay CLOSED"),
    ],
)
def test_a_provider_that_is_wrong_once_is_broken_by_a_sentence(
    channel: str, case: str, method: str, mistake: Callable[..., Any], sentence: str, sandbox: Sandbox
) -> None:
    plugin = careless(registry.plugin(channel, {}), method, mistake)
    assert sentence in breaks(plugin, sandbox, case=case, channel=channel)


def swapped(sound: Plugin) -> Callable[[Refusal | None], Acknowledgement]:
    """Says of what was taken that it was not, each with a status of its own."""
    taken, refused = sound.acknowledge(None), sound.acknowledge(Refusal(status=503, message=""))

    def answer(refusal: Refusal | None) -> Acknowledgement:
        return replace(refused, status=200) if refusal is None else taken

    return answer


def accepting(sound: Plugin) -> Callable[[Refusal | None], Acknowledgement]:
    """Gives the body that acknowledges with a refusal too."""
    return lambda refused: replace(sound.acknowledge(None), status=503 if refused else 200)


@pytest.mark.parametrize(
    ("acknowledge", "seconds", "sentence"),
    [
        (swapped, 5.0, "the provider sends again what `acknowledge` has taken"),
        (accepting, 3.0, "the provider takes what `acknowledge` has refused"),
    ],
)
def test_acknowledgements_that_are_swapped_or_alike_are_broken(
    acknowledge: Any, seconds: float, sentence: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("payments.testing.relay.SECONDS_MAX", seconds)
    sound = registry.plugin("alipay", {})
    plugin = replace(sound, acknowledge=acknowledge(sound))
    assert breaks(plugin, sandbox, case="acknowledged", channel="alipay").startswith(sentence)


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"capabilities": frozenset({"refund", "refunds"})}, "knows no capability 'refunds'"),
        ({"capabilities": "refund"}, "`Plugin.capabilities` must be a frozenset, not a str"),
        ({"headers": "Wechatpay-Signature"}, "`Plugin.headers` must be a tuple, not a str"),
        ({"required": "KEY"}, "`Plugin.required` must be a tuple, not a str"),
        ({"label": ""}, "`Plugin.label` is empty"),
    ],
)
def test_what_a_plugin_declares_is_read(members: dict[str, Any], sentence: str, sandbox: Sandbox) -> None:
    assert sentence in breaks(replace(registry.plugin("wechat", {}), **members), sandbox, case="declared")


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"methods": "native"}, "`methods` must be a tuple, not a str"),
        ({"methods": ()}, "`methods` is empty"),
        ({"methods": ("a-method-of-17-chr",)}, "has more than 16 characters"),
        ({"currencies": "CNY"}, "`currencies` must be a frozenset, not a str"),
        ({"currencies": frozenset({"yuan"})}, "knows no currency 'yuan'"),
        ({"zone": "Asia/Shanghai"}, "`zone` must be a tzinfo, not a str"),
        ({"merchant": ""}, "`merchant` is empty"),
        ({"number": str.upper, "read_number": str}, "`read_number` reads "),
        ({"number": lambda number: int(number, 16), "read_number": str}, "`number` must be a str, not a int"),
        ({"number": lambda number: number * 3, "read_number": str}, "`number` writes 96 characters, more than 64"),
    ],
)
def test_what_a_provider_declares_is_read(members: dict[str, Any], sentence: str, sandbox: Sandbox) -> None:
    sound = registry.plugin("wechat", {})

    def build(*given: Any) -> Provider:
        made = sound.build(*given)
        vars(made).update(members)
        return made

    assert sentence in breaks(replace(sound, build=build), sandbox, case="declared")
