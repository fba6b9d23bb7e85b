"""`Account` for a provider that speaks JSON, against a server that says what a test wants."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from payments import providers as pay
from tests.unit.payments.providers.conftest import NUMBER, REFUND_NUMBER, Company, create
from tests.unit.payments.providers.test_answers import CALLS as ASKED
from tests.unit.payments.providers.test_answers import DAY

SENT_AT = datetime(2026, 11, 20, 9, tzinfo=UTC)
HEADERS = ("X-Signature", "X-Time")


class Kite(pay.Account):
    channel, methods, currencies, zone = "kite", (pay.PayMethod.PAGE,), frozenset({"CNY"}), UTC
    unknown, unfunded = ("unknown",), "poor"

    def __init__(self, url: str) -> None:
        super().__init__("m-1")
        self.url, self.verifier = url, pay.Hmac("hush", header="x-signature", time_header="x-time")

    def open(self, wanted: pay.Opening) -> pay.NextAction:
        found = self.call("POST", "/open", {"n": wanted.out_trade_no}, asked={"n": wanted.out_trade_no})
        return pay.NextAction(type="redirect", url=found["page"])

    def find(self, out_trade_no: str, reference: str) -> pay.Trade:
        return self.trade(self.call("GET", f"/{out_trade_no}", asked={"n": out_trade_no}))

    def end(self, out_trade_no: str, reference: str) -> pay.Trade:
        self.call("POST", f"/{out_trade_no}/close", {}, asked={"n": out_trade_no})
        return self.closed(out_trade_no)

    def give_back(self, wanted: pay.Refunding) -> pay.RefundResult:
        return self.refunded(self.call("POST", "/refund", {"n": wanted.out_refund_no}, asked={}))

    def find_refund(self, out_trade_no: str, out_refund_no: str, reference: str) -> pay.RefundResult:
        return self.refunded(self.call("GET", f"/{out_refund_no}", asked={"n": out_refund_no}))

    def lines(self, day: date) -> Iterator[pay.BillLine]:
        for entry in self.call("GET", f"/{day}", asked={"day": f"{day}"})["entries"]:
            yield pay.BillLine.of(self.fact(entry))

    def notice(self, document: Any) -> pay.Notice:
        return pay.Notice(notification_id=document["id"], event_type="paid", facts=(self.fact(document),))

    def signed(self, method: str, path: str, body: bytes) -> dict[str, str]:
        return {"X-Signature": self.verifier.sign(f"{method} {path}".encode() + body)}

    def refusal(self, document: dict[str, Any]) -> tuple[str, str]:
        return document["code"], "no"

    def trade(self, found: dict[str, Any]) -> pay.Trade:
        return pay.Trade(status=pay.TradeStatus(found["status"]), facts=(self.fact(found),))

    def refunded(self, found: dict[str, Any]) -> pay.RefundResult:
        return pay.RefundResult(status=pay.RefundStatus.SUCCEEDED, facts=(self.fact(found),))

    def fact(self, found: dict[str, Any]) -> pay.Fact:
        return pay.Fact(
            kind=pay.FactKind.PAID,
            channel="kite",
            merchant="m-1",
            out_trade_no=found["n"],
            provider_txn_id="t-1",
            amount_minor=found["amount"],
            currency="CNY",
        )


class Shouting(Kite):
    def number(self, ours: str) -> str:
        return f"K-{ours.upper()}"

    def read_number(self, theirs: str) -> str:
        if not theirs.startswith("K-"):
            raise ValueError(theirs)
        return theirs.removeprefix("K-").lower()


CALLS: dict[str, Any] = {"create": create, **ASKED}


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize(
    ("status", "document", "error"),
    [
        (400, {"code": "strange"}, pay.ProviderRejected),
        (400, {}, pay.OutcomeUnknown),
        (401, {"code": "unknown"}, pay.ProviderUnavailable),
        (429, {"code": "unknown"}, pay.ProviderUnavailable),
        (302, {"n": NUMBER}, pay.OutcomeUnknown),
        (200, {"n": "another", "day": ""}, pay.OutcomeUnknown),
        (200, [], pay.OutcomeUnknown),
        (500, {"code": "unknown"}, pay.OutcomeUnknown),
    ],
)
def test_what_an_answer_proves(
    company: Company, what: str, status: int, document: object, error: type[Exception]
) -> None:
    company.says = {"": (status, document)}
    if (what, status, error) == ("close", 400, pay.ProviderRejected):
        error = pay.OutcomeUnknown  # the question after it is refused too
    with pytest.raises(error):
        CALLS[what](Kite(company.url))


@pytest.mark.parametrize("what", sorted({*CALLS} - {"close"}))
def test_what_cannot_be_read_proves_nothing(company: Company, what: str) -> None:
    """An error of ours would end a refund that may have been made."""
    company.says = {
        "": (200, {"n": REFUND_NUMBER if "refund" in what else NUMBER, "day": f"{DAY}", "status": "new"})
    }
    with pytest.raises(pay.OutcomeUnknown, match=r"cannot be read: \w+Error at \w+\.py"):
        CALLS[what](Kite(company.url))


def test_a_number_that_is_unknown(company: Company) -> None:
    company.says = {"": (404, {"code": "unknown"})}
    kite = Kite(company.url)
    assert CALLS["query"](kite) == pay.Trade(status=pay.TradeStatus.NOT_FOUND)
    assert CALLS["query_refund"](kite) == pay.RefundResult(status=pay.RefundStatus.NOT_FOUND)
    assert CALLS["close"](kite) == kite.closed(NUMBER)


def test_a_close_that_is_refused_is_asked_about(company: Company) -> None:
    """Whatever the code says: a paid order may have no other witness."""
    company.says = {f"/{NUMBER}/close": (409, {"code": "strange"})}
    for status in ("paid", "closed"):
        company.says[""] = (200, {"n": NUMBER, "status": status, "amount": 1})
        assert CALLS["close"](Kite(company.url)).status == status
    for answer in ((200, {"n": NUMBER, "status": "pending", "amount": 1}), (404, {"code": "unknown"})):
        company.says[""] = answer
        with pytest.raises(pay.ProviderRejected, match="strange"):
            CALLS["close"](Kite(company.url))


@pytest.mark.parametrize("later_seconds", [0, 299, 300])
def test_a_notification_is_verified_and_read(later_seconds: int) -> None:
    kite, body = Kite(""), json.dumps({"id": "1", "n": NUMBER, "amount": 1}).encode()
    stamp = str(int(SENT_AT.timestamp()))
    headers = {"X-TIME": stamp, "X-SIGNATURE": kite.verifier.sign(f"{stamp}.".encode() + body)}  # type: ignore[attr-defined]

    def read(content: bytes) -> pay.Notice:
        return kite.read_notification(
            headers=headers, body=content, now=SENT_AT + timedelta(seconds=later_seconds)
        )

    if later_seconds < 300:
        assert read(body).facts[0].out_trade_no == NUMBER
    with pytest.raises(pay.SignatureInvalid, match="too far" if later_seconds == 300 else "does not verify"):
        read(body if later_seconds == 300 else body + b" ")


def test_calls_are_signed_and_numbers_travel_in_the_providers_form(company: Company) -> None:
    kite, theirs = Shouting(company.url), f"K-{NUMBER.upper()}"
    company.says = {"": (200, {"n": theirs, "page": "https://kite.example/1", "status": "paid", "amount": 1})}
    assert create(kite).url == "https://kite.example/1"
    assert json.loads(company.bodies[0]) == {"n": theirs}
    signature = kite.verifier.sign(b"POST /open" + company.bodies[0])  # type: ignore[attr-defined]
    assert company.asked[0][1]["X-Signature"] == signature
    assert CALLS["query"](kite).facts[0].out_trade_no == NUMBER
    assert company.calls == ["POST /open", f"GET /{theirs}"]
    assert CALLS["close"](kite) == Kite("").closed(NUMBER)
    company.says = {"": (200, {"day": f"{DAY}", "entries": [{"n": n, "amount": 1} for n in (theirs, "F-7")]})}
    assert [line.out_trade_no for line in CALLS["bill"](kite)] == [NUMBER, "F-7"]


def test_a_refund_by_hand_has_the_number_of_our_trade(company: Company) -> None:
    """Its own number is of a person, and its provider numbers no payments."""
    kite, theirs = Shouting(company.url), f"K-{NUMBER.upper()}"
    fact = kite.fact({"n": theirs, "amount": 1})
    by_hand = replace(fact, kind=pay.FactKind.REFUNDED, out_refund_no="by hand", paid_txn_id=theirs)
    kite.find = lambda *_: pay.Trade(status=pay.TradeStatus.PAID, facts=(by_hand,))  # type: ignore[method-assign]
    (read,) = CALLS["query"](kite).facts
    assert (read.out_trade_no, read.out_refund_no, read.paid_txn_id) == (NUMBER, "by hand", NUMBER)
