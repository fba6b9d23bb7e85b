"""Stripe's events: believed if genuine, of now, of our account and mode, and readable."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from payments.errors import NotificationMalformed, SignatureInvalid
from payments.providers import registry
from payments.providers.base import BillLine, FactKind, Notice, RefundResult, RefundStatus
from payments.providers.disputes import Dispute, DisputeStatus
from payments.providers.stripe.bill import bill_line
from payments.providers.stripe.client import StripeIntents
from payments.sandbox.stripe.documents import signature

SENT_AT = 1_790_000_000
NOW = datetime.fromtimestamp(SENT_AT, UTC)
NUMBER, REFUND_NUMBER = "b" * 32, "c" * 32
SECRETS = ("whsec_new", "whsec_old")

# of the documents as Stripe's API reference shows them, the members that count (read 2026-11)
INTENT: dict[str, Any] = {
    "id": "pi_1",
    "object": "payment_intent",
    "amount": 1990,
    "amount_received": 1990,
    "currency": "cny",
    "created": SENT_AT - 60,
    "latest_charge": "py_1",
    "metadata": {"out_trade_no": NUMBER},
    "status": "succeeded",
}
REFUND: dict[str, Any] = {
    "id": "re_1",
    "object": "refund",
    "amount": 990,
    "currency": "cny",
    "created": SENT_AT - 1,
    "metadata": {"out_trade_no": NUMBER, "out_refund_no": REFUND_NUMBER},
    "payment_intent": "pi_1",
    "status": "succeeded",
}


def built(**changed: str) -> StripeIntents:
    settings = {
        "API_URL": "http://127.0.0.1:1",
        "SECRET_KEY": "sk_test_1",
        "WEBHOOK_SECRET": ",\n".join(SECRETS),
        **changed,
    }
    made: Any = registry.build({"stripe": settings})["stripe"]
    return made


@pytest.fixture
def stripe(no_network: None) -> StripeIntents:
    return built()


def event(kind: str = "payment_intent.succeeded", document: Any = INTENT, **changed: Any) -> bytes:
    known = {
        "id": "evt_1",
        "object": "event",
        "api_version": "2026-10-28.endive",
        "created": SENT_AT,
        "data": {"object": document},
        "livemode": False,
        "type": kind,
    }
    return json.dumps({**known, **changed}).encode()


def read(
    stripe: StripeIntents, body: bytes, *, sent_at: int = SENT_AT, secret: str = SECRETS[0], now: datetime = NOW
) -> Notice:
    header = signature(body, secret=secret, timestamp=sent_at)
    return stripe.read_notification(headers={"STRIPE-signature": header}, body=body, now=now)


OF_REFUND = {"kind": FactKind.REFUNDED, "provider_txn_id": "re_1", "amount_minor": 990, "out_trade_no": NUMBER}
STATED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        *("payment_intent.succeeded", {**INTENT, "amount_received": 2090}),
        {"kind": FactKind.PAID, "channel": "stripe", "merchant": "stripe", "out_trade_no": NUMBER}
        | {"provider_txn_id": "pi_1", "occurred_at": NOW, "amount_minor": 2090, "currency": "CNY"},
    ),
    (
        *("payment_intent.canceled", {**INTENT, "status": "canceled"}),
        {"kind": FactKind.CLOSED, "out_trade_no": NUMBER, "amount_minor": 0},
    ),
    *(
        (kind, REFUND, {**OF_REFUND, "out_refund_no": REFUND_NUMBER, "paid_txn_id": "pi_1", "paid_minor": None})
        for kind in ("refund.created", "refund.updated", "charge.refund.updated")
    ),
]


@pytest.mark.parametrize(("kind", "document", "stated"), STATED)
def test_what_an_event_states(
    stripe: StripeIntents, kind: str, document: dict[str, Any], stated: dict[str, Any]
) -> None:
    notice = read(stripe, event(kind, document))
    (fact,) = notice.facts
    assert (notice.notification_id, notice.event_type) == ("evt_1", kind)
    assert {name: getattr(fact, name) for name in stated} == stated


DISPUTE: dict[str, Any] = {
    "id": "du_1",
    "object": "dispute",
    "amount": 1990,
    "balance_transactions": [],
    "charge": "py_1",
    "currency": "cny",
    "evidence_details": {"due_by": SENT_AT + 60, "past_due": False},
    "metadata": {},
    "payment_intent": "pi_1",
    "reason": "fraudulent",
    "status": "needs_response",
}
TAKEN = {"id": "txn_1", "amount": -1990, "currency": "cny", "fee": 1500, "created": SENT_AT - 2}
THIN = {"object": "v2.core.event", "created": "2026-09-17T06:20:52.246Z"}


@pytest.mark.parametrize(
    ("theirs", "status", "is_due"),
    [
        ("needs_response", DisputeStatus.OPEN, True),
        ("warning_needs_response", DisputeStatus.OPEN, True),
        ("under_review", DisputeStatus.OPEN, False),
        ("of next year", DisputeStatus.OPEN, False),
        ("warning_closed", DisputeStatus.WON, False),
        ("won", DisputeStatus.WON, False),
        ("lost", DisputeStatus.LOST, False),
    ],
)
def test_a_dispute_says_how_it_stands(
    stripe: StripeIntents, theirs: str, status: DisputeStatus, is_due: bool
) -> None:
    (fact,) = read(stripe, event("charge.dispute.updated", {**DISPUTE, "status": theirs})).facts
    assert (fact.kind, fact.provider_txn_id, fact.paid_txn_id) == (FactKind.DISPUTED, "du_1", "pi_1")
    assert (fact.amount_minor, fact.currency, fact.occurred_at) == (1990, "CNY", NOW)
    due = NOW + timedelta(seconds=60) if is_due else None
    assert fact.dispute == Dispute(status=status, reason="fraudulent", respond_by=due)


def test_every_event_of_a_dispute_states_what_it_has_moved_so_far(stripe: StripeIntents) -> None:
    """In the charge's currency, whatever the balance's; the fee is none of the payer's money."""
    dollars = {**TAKEN, "amount": 275, "currency": "usd", "created": SENT_AT - 1}
    document = {**DISPUTE, "status": "won", "balance_transactions": [TAKEN, dollars]}
    _, taken, returned = read(stripe, event("charge.dispute.closed", document)).facts
    assert [(fact.kind, fact.amount_minor, fact.currency) for fact in (taken, returned)] == [
        (FactKind.TAKEN, 1990, "CNY"),
        (FactKind.RETURNED, 1990, "CNY"),
    ]
    assert {fact.provider_txn_id for fact in (taken, returned)} == {"du_1"}
    entry = {**TAKEN, "type": "adjustment", "source": {**DISPUTE, "payment_intent": INTENT}}
    line = bill_line(entry)
    assert replace(line, out_trade_no="") == replace(BillLine.of(taken), paid_txn_id="pi_1")
    assert line.out_trade_no == NUMBER


NUMBERED = [{**REFUND["metadata"], "out_refund_no": number} for number in ("r" * 65, "r\x00", 7)]


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("payment_intent.processing", INTENT),
        ("payment_intent.succeeded", {**INTENT, "status": "processing", "amount_received": 0}),
        ("charge.succeeded", {"id": "py_1"}),
        ("charge.dispute.created", {**DISPUTE, "payment_intent": None}),
        ("refund.created", {**REFUND, "status": "pending"}),
        ("refund.created", {**REFUND, "metadata": {}}),  # by hand, in the dashboard
        *(("refund.updated", {**REFUND, "metadata": metadata}) for metadata in NUMBERED),  # of another system
        ("payment_intent.succeeded", {**INTENT, "metadata": {}}),  # of something else in the same account
        *(
            ("payment_intent.succeeded", {**INTENT, "metadata": {"out_trade_no": number}})
            for number in ("n" * 65, "n\ud800", {"n": 1})
        ),
        ("payment_intent.canceled", {**INTENT, "metadata": None}),
        ("payment_intent.succeeded", THIN),  # refused, it would be sent again for three days
    ],
)
def test_what_moves_no_money_of_ours_is_no_fact(stripe: StripeIntents, kind: str, document: Any) -> None:
    notice = read(stripe, event(kind, **(THIN if document is THIN else {"document": document})))
    assert (notice.facts, notice.refund) == ((), None)


def test_a_thin_event_says_nothing(stripe: StripeIntents) -> None:
    """Refused, it would be sent again for three days, and the endpoint turned off."""
    thin = {"id": "evt_2", "object": "v2.core.event", "type": "payment_intent.succeeded", "livemode": False}
    notice = read(stripe, json.dumps({**thin, "created": "2026-09-17T06:20:52.246Z"}).encode())
    assert (notice.notification_id, notice.facts, notice.refund) == ("evt_2", (), None)


def test_any_of_our_secrets_and_signatures_within_the_skew_of_the_clock_that_is_given(
    stripe: StripeIntents,
) -> None:
    for secret, skew_seconds in ((SECRETS[0], -299), (SECRETS[1], 299)):
        assert read(stripe, event(), secret=secret, sent_at=SENT_AT + skew_seconds).notification_id == "evt_1"
    genuine = signature(event(), secret=SECRETS[1], timestamp=SENT_AT)
    header = genuine.replace(",v1=", f",v0=ab,v1={'0' * 64},v1=")
    assert stripe.read_notification(headers={"Stripe-Signature": header}, body=event(), now=NOW).facts
    with pytest.raises(SignatureInvalid, match="too far from ours"):
        read(stripe, event(), now=NOW + timedelta(seconds=300))
    with pytest.raises(SignatureInvalid, match="no time is signed"):
        stripe.read_notification(headers={}, body=event(), now=NOW)


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_a_refund_that_ends_without_moving_money_is_shown(stripe: StripeIntents, status: str) -> None:
    notice = read(stripe, event("refund.updated", {**REFUND, "status": status, "failure_reason": "expired"}))
    assert (notice.facts, notice.refund) == (
        (),
        RefundResult(status=RefundStatus.FAILED, message=f"{status}: expired", out_refund_no=REFUND_NUMBER),
    )


@pytest.mark.parametrize(("key", "livemode"), [("sk_test_1", True), ("sk_live_1", False), ("rk_live_1", None)])
def test_an_event_of_the_other_mode_is_refused(key: str, livemode: bool | None) -> None:
    stripe = built(SECRET_KEY=key, API_URL="https://127.0.0.1:1")
    with pytest.raises(SignatureInvalid, match="other mode"):
        read(stripe, event(livemode=livemode))


def test_an_event_of_another_account_is_about_its_money() -> None:
    stripe = built(ACCOUNT="acct_ours")
    assert read(stripe, event(account="acct_ours")).facts[0].merchant == "acct_ours"
    assert read(stripe, event()).facts[0].merchant == "acct_ours"
    assert read(stripe, event(account="acct_theirs")).facts[0].merchant == "acct_theirs"
    failed = event("refund.failed", {**REFUND, "status": "failed"}, account="acct_theirs")
    assert read(stripe, failed).refund is None
    with pytest.raises(NotificationMalformed):
        read(stripe, event(account=7))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"{}", event(object=7), event(data={})),
        *(event(id=number) for number in (None, "i" * 129)),
        *(event(type=kind) for kind in (7, "t" * 65)),
        *(event(document={**INTENT, "amount_received": amount}) for amount in ("1990", True, -1)),
        event(document={**INTENT, "currency": None}),
        event(document={**INTENT, "metadata": [NUMBER]}),
        *(event(created=moment) for moment in ("now", 10**12, 10**30)),
        event("refund.created", {**REFUND, "payment_intent": None}),
        event("refund.created", {**REFUND, "created": None}),
        *(
            event("charge.dispute.created", {**DISPUTE, "balance_transactions": [{**TAKEN, "amount": amount}]})
            for amount in (-19.9, "1990", None)
        ),
    ],
)
def test_signed_but_not_readable(stripe: StripeIntents, body: bytes) -> None:
    with pytest.raises(NotificationMalformed) as refused:
        read(stripe, body)
    assert NUMBER not in str(refused.value)
