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
Mistake = Callable[..., Any]


def stating(method: str, **members: Any) -> Mistake:
    """A method whose facts have other members; a function is given the genuine one."""

    def mistaken(genuine: Provider, **given: Any) -> Answered:
        answer: Answered = getattr(genuine, method)(**given)
        return replace(answer, facts=tuple(_with(fact, members) for fact in answer.facts))

    return mistaken


def _with(found: Any, members: dict[str, Any]) -> Any:
    made = {name: new(getattr(found, name)) if callable(new) else new for name, new in members.items()}
    return replace(found, **made)


def returning(method: str, **members: Any) -> Mistake:
    """A method that returns other members; a function is given the genuine one."""
    return lambda genuine, **given: _with(getattr(genuine, method)(**given), members)


def unless(method: str, caught: type[ProviderError], answer: Any) -> Mistake:
    """A method that answers, or raises, this instead of an error."""

    def mistaken(genuine: Provider, **given: Any) -> Any:
        try:
            return getattr(genuine, method)(**given)
        except caught:
            if isinstance(answer, Exception):
                raise answer from None
            return answer

    return mistaken


def without_zone(moment: Any) -> Any:
    return moment and moment.replace(tzinfo=None)


def closing_all(genuine: Any, **given: Any) -> Trade:
    genuine.close(**given)
    return genuine.closed(given["out_trade_no"])  # type: ignore[no-any-return]


def for_good(genuine: Provider, **given: Any) -> Trade:
    genuine.close(**given)
    return Trade(status=TradeStatus.CLOSED)


def forgetful(genuine: Provider, *, out_trade_no: str, reference: str = "") -> Trade:
    given = {"channel": genuine.channel, "merchant": genuine.merchant, "out_trade_no": out_trade_no}
    return Trade(status=TradeStatus.CLOSED, facts=(closed_fact(**given),))


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
    try:
        unverified.read = genuine.read_notification(headers=headers, body=body, now=now)  # type: ignore[attr-defined]
    except ProviderError:
        return replace(unverified.read, event_type="CHANGED")  # type: ignore[attr-defined]
    return unverified.read  # type: ignore[attr-defined,no-any-return]


def never_stale(genuine: Provider, *, headers: Any, body: bytes, now: Any) -> Notice:
    stamp = next(value for name, value in headers.items() if name.lower() == "wechatpay-timestamp")
    return genuine.read_notification(headers=headers, body=body, now=now.fromtimestamp(int(stamp), now.tzinfo))


def always_ours(genuine: Provider, **given: Any) -> Notice:
    notice = genuine.read_notification(**given)
    return replace(notice, facts=tuple(replace(fact, merchant=genuine.merchant) for fact in notice.facts))


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


hopeful = unless("query", OutcomeUnknown, Trade(status=TradeStatus.NOT_FOUND))
credulous = unless("refund", OutcomeUnknown, RefundResult(status=RefundStatus.PROCESSING))
unreachable = unless("refund", ProviderRejected, ProviderUnavailable("refused"))


def breaks(plugin: Plugin, sandbox: Sandbox, *, case: str, channel: str = "wechat") -> str:
    """Certify a plugin that fails in the case; the sentence for its author."""
    with pytest.raises(NotCertified, match=f"^{case}: ") as found:
        certify(plugin, SandboxSide(channel, sandbox), only=(case,))
    return found.value.certificate.broken[case]


OF_WECHAT: dict[str, list[tuple[str, Mistake, str]]] = {
    "a payment": [
        ("query", stating("query", occurred_at=without_zone), "its fact's time has no zone"),
        ("query", stating("query", currency="cny"), "currency must be three capitals, not 'cny'"),
        ("query", stating("query", provider_txn_id="1"), "two payments have one `provider_txn_id`"),
        ("query", returning("query", status=str), "query: its status must be a TradeStatus, not a str"),
        ("query", returning("query", facts=list), "query: its facts must be a tuple, not a list"),
    ],
    "asking moves nothing": [("query_refund", giving, "a question moved money")],
    "refunds": [
        ("query_refund", stating("query_refund", out_refund_no=""), "carry our number of it"),
        ("query_refund", stating("query_refund", provider_txn_id="1"), "two refunds have one `provider_txn_id`"),
        ("query_refund", stating("query_refund", is_whole=True), "state its own amount, not a sum"),
        ("query_refund", unwritten, "NotImplementedError: in unwritten"),
        ("refund", stating("refund", amount_minor=str), "an int of minor units, not a str"),
        ("refund", again, "the same refund, asked for twice, moved money twice"),
        ("refund", unreachable, "a refund that is refused raises ProviderUnavailable"),
    ],
    "duplicates": [
        (
            "read_notification",
            returning("read_notification", notification_id=lambda _: new_id().hex),
            "different ids",
        ),
        ("read_notification", stating("read_notification", amount_minor=str), "an int of minor units"),
        ("read_notification", asking, "the provider is called to read a notification"),
    ],
    "parallel": [
        ("query", remembering, "threads that ask about different trades get each other's"),
        ("refund", again, "one refund, asked for by several threads, moved money twice"),
    ],
    "delayed": [("query", stating("query", provider_txn_id="another"), "it would count twice")],
    "reordered": [
        ("read_notification", returning("read_notification", notification_id="1"), "has the id of the payment's")
    ],
    "early": [("query", stating("query", provider_txn_id="another"), "an early notification states another fact")],
    "after close": [
        ("close", closing_all, "money after a close must make it PAID"),
        ("close", for_good, "closing an unpaid trade must be CLOSED with its fact"),
    ],
    "wrong amount": [("query", stating("query", amount_minor=1990), "the amount that was asked, not what was")],
    "wrong currency": [("query", stating("query", currency="CNY"), "the currency that was asked, not what was")],
    "wrong merchant": [("read_notification", always_ours, "the money went to another merchant")],
    "wrong number": [("query", hopeful, "query returned not_found after an answer about another number")],
    "answers lost": [("refund", credulous, "refund returned although its answer was lost")],
    "refused questions": [("query", hopeful, "query returned not_found after a bare 500")],
    "forged": [("read_notification", unverified, "a notification that was changed on the way was taken")],
    "stale": [("read_notification", never_stale, "a notification signed 300 s ago was taken")],
    "foreign answers": [
        ("query", hopeful, "query returned not_found after a 200 with <html>"),
        ("query", leaking, "query raised ReadError after no answer"),
    ],
    "a bill": [
        ("bill", lambda genuine, **given: genuine.bill(**given) * 2, "the bill lists a line more than once"),
        ("bill", lambda genuine, **given: (), "the bill lists []"),
        (
            *(
                "bill",
                lambda genuine, **given: tuple(_with(one, {"amount_minor": str}) for one in genuine.bill(**given)),
            ),
            "bill: its line's amount must be an int of minor units, not a str",
        ),
    ],
}
OF_PAYPAL: list[tuple[str, str, Mistake, str]] = [
    (
        *("a payment", "query", lambda genuine, **given: genuine.query(**given | {"reference": ""})),
        "a paid trade must be PAID",
    ),
    ("asking moves nothing", "query", lambda genuine, **given: genuine.capture(**given), "a question moved money"),
    ("a void", "close", forgetful, "a trade that was let go must stay CLOSED"),
]


@pytest.mark.parametrize(
    ("channel", "case", "method", "mistake", "sentence"),
    [
        *(("wechat", case, *row) for case, rows in OF_WECHAT.items() for row in rows),
        *(("paypal", *row) for row in OF_PAYPAL),
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


DECLARED: list[tuple[dict[str, Any], str]] = [
    ({"capabilities": frozenset({"refund", "refunds"})}, "knows no capability 'refunds'"),
    ({"capabilities": "refund"}, "`Plugin.capabilities` must be a frozenset, not a str"),
    ({"headers": "Wechatpay-Signature"}, "`Plugin.headers` must be a tuple, not a str"),
    ({"required": "KEY"}, "`Plugin.required` must be a tuple, not a str"),
    ({"label": ""}, "`Plugin.label` is empty"),
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
]


@pytest.mark.parametrize(("members", "sentence"), DECLARED)
def test_what_a_plugin_or_its_provider_declares_is_read(
    members: dict[str, Any], sentence: str, sandbox: Sandbox
) -> None:
    sound = registry.plugin("wechat", {})
    of_plugin = {name: value for name, value in members.items() if hasattr(sound, name)}

    def build(*given: Any) -> Provider:
        made = sound.build(*given)
        vars(made).update({name: value for name, value in members.items() if name not in of_plugin})
        return made

    assert sentence in breaks(replace(sound, build=build, **of_plugin), sandbox, case="declared")
