"""PayPal's documents, webhooks and settings; `certify` proves the rest against the sandbox.

PayPal publishes no signed webhook: a certificate of ours signs here, as "Integrate webhooks" describes (read
2026-11). The documents have the members of PayPal's own examples.
"""

import base64
import json
import zlib
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from payments.errors import NotificationMalformed, OutcomeUnknown, ProviderUnavailable, SignatureInvalid
from payments.providers import registry
from payments.providers.base import FactKind, RefundStatus, TradeStatus
from payments.providers.bearer import Bearer
from payments.providers.disputes import Dispute, DisputeStatus
from payments.providers.paypal.client import PayPalOrders, bill_line
from payments.providers.transport import ask, client
from tests.unit.payments.providers.conftest import Company, refund

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
KEY, NEXT_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
CAPTURE = {
    "id": "29Y24445UY2083144",
    "status": "COMPLETED",
    "amount": {"value": "100.00", "currency_code": "USD"},
    "invoice_id": "0193",
    "custom_id": "payonce",
    "create_time": "2026-11-24T11:59:58Z",
    "final_capture": True,
    "supplementary_data": {"related_ids": {"order_id": "89T257400V0473133"}},
}
REFUND = {
    "id": "55105082X5896632E",
    "status": "COMPLETED",
    "amount": {"value": "10.00", "currency_code": "USD"},
    "invoice_id": "0194",
    "custom_id": "payonce:0193",
    "create_time": "2026-11-24T03:59:58-08:00",
    "links": [
        {"rel": "self", "href": "https://api.sandbox.paypal.com/v2/payments/refunds/55105082X5896632E"},
        {"rel": "up", "href": "https://api.sandbox.paypal.com/v2/payments/captures/29Y24445UY2083144"},
    ],
}


def certificate(key: rsa.RSAPrivateKey = KEY, *, days: int = 1) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "messageverificationcerts.paypal.com")])
    first, last = NOW - timedelta(days=9), NOW + timedelta(days=days)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, first, last)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def account(url: str = "http://127.0.0.1:1", certificates: bytes = b"") -> PayPalOrders:
    with NamedTemporaryFile() as file:
        file.write(certificates or certificate())
        file.flush()
        settings = {
            "API_URL": url,
            "CLIENT_ID": "us",
            "CLIENT_SECRET": "hush",
            "MERCHANT_ID": "2BP3WP8PK6566",
            "WEBHOOK_ID": "1JE42910",
            "CERT_FILE": file.name,
        }
        return PayPalOrders(settings, nullcontext)


def event(kind: str, resource: dict[str, Any]) -> bytes:
    return json.dumps({"id": "WH-2CL46544TB770421K", "event_type": kind, "resource": resource}).encode()


def signed(
    body: bytes, *, key: rsa.RSAPrivateKey = KEY, webhook_id: str = "1JE42910", at: str = "2026-11-24T12:00:00Z"
) -> dict[str, str]:
    message = f"69cd13f0-d67a-11e5|{at}|{webhook_id}|{zlib.crc32(body)}".encode()
    return {
        "PAYPAL-TRANSMISSION-ID": "69cd13f0-d67a-11e5",
        "PAYPAL-TRANSMISSION-TIME": at,
        "PAYPAL-TRANSMISSION-SIG": base64.b64encode(
            key.sign(message, padding.PKCS1v15(), hashes.SHA256())
        ).decode(),
        "PAYPAL-AUTH-ALGO": "SHA256withRSA",
    }


BODY = event("PAYMENT.CAPTURE.COMPLETED", CAPTURE)


def read(kind: str, resource: dict[str, Any]) -> Any:
    body = event(kind, resource)
    return account().read_notification(headers=signed(body), body=body, now=NOW)


def test_a_refund_that_failed_waits_for_a_person() -> None:
    notice = read("PAYMENT.REFUND.FAILED", REFUND | {"status": "FAILED"})
    assert notice.facts == ()
    assert (notice.refund.status, notice.refund.out_refund_no) == (RefundStatus.FAILED, "0194")


DISPUTE = {
    "dispute_id": "PP-D-4012",
    "create_time": "2026-11-20T08:00:00.000Z",
    "update_time": "2026-11-24T08:00:00.000Z",
    "disputed_transactions": [{"seller_transaction_id": "29Y24445UY2083144", "seller": {"merchant_id": "HERS"}}],
    "reason": "UNAUTHORISED",
    "status": "WAITING_FOR_SELLER_RESPONSE",
    "dispute_amount": {"currency_code": "USD", "value": "40.00"},
    "seller_response_due_date": "2026-12-04T08:00:00.000Z",
}
OURS = {"out_trade_no": "0193", "currency": "USD", "occurred_at": NOW - timedelta(seconds=2)}
GONE = {"provider_txn_id": REFUND["id"], "amount_minor": 1_000, "paid_txn_id": CAPTURE["id"]}
BACK = {**OURS, **GONE, "kind": FactKind.REFUNDED}
STATED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        *("COMPLETED", CAPTURE),
        {**OURS, "kind": FactKind.PAID, "amount_minor": 10_000, "merchant": "2BP3WP8PK6566"}
        | {"provider_txn_id": "29Y24445UY2083144"},
    ),
    ("REFUNDED", REFUND, {**BACK, "out_refund_no": "0194"}),
    *(
        ("REFUNDED", REFUND | {"invoice_id": "0193", "custom_id": mark}, BACK)
        for mark in ("payonce", "payonce:closed")
    ),
    ("REVERSED", REFUND, {**GONE, "kind": FactKind.TAKEN}),
]


@pytest.mark.parametrize(("kind", "resource", "stated"), STATED)
def test_what_an_event_of_a_capture_states(kind: str, resource: dict[str, Any], stated: dict[str, Any]) -> None:
    (fact,) = read(f"PAYMENT.CAPTURE.{kind}", resource).facts
    assert {name: getattr(fact, name) for name in stated} == stated


UNNAMED = {name: value for name, value in DISPUTE.items() if name != "disputed_transactions"}


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        *(
            ("PAYMENT.CAPTURE.COMPLETED", CAPTURE | changes)
            for changes in ({"custom_id": "another system"}, {"invoice_id": None}, {"invoice_id": "n\x00"})
        ),
        ("PAYMENT.CAPTURE.PENDING", CAPTURE),
        ("PAYMENT.CAPTURE.REFUNDED", CAPTURE | {"custom_id": "another system"}),
        ("PAYMENT.CAPTURE.REVERSED", REFUND | {"status": "PENDING"}),
        ("PAYMENT.CAPTURE.REVERSED", CAPTURE),  # which does not say under which number
        ("CHECKOUT.ORDER.APPROVED", CAPTURE),
        *(
            ("CUSTOMER.DISPUTE.CREATED", UNNAMED | about)
            for about in ({}, {"disputed_transactions": []}, {"disputed_transactions": [{"gross": "1"}]})
        ),
    ],
)
def test_what_moves_no_money_of_ours_states_nothing(kind: str, resource: dict[str, Any]) -> None:
    notice = read(kind, resource)
    assert (notice.facts, notice.refund, notice.event_type) == ((), None, kind)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (None, DisputeStatus.OPEN),
        ("RESOLVED_BUYER_FAVOUR", DisputeStatus.LOST),
        ("ACCEPTED", DisputeStatus.LOST),
        ("RESOLVED_SELLER_FAVOUR", DisputeStatus.WON),
        ("CANCELED_BY_BUYER", DisputeStatus.WON),
    ],
)
def test_a_dispute_says_how_it_stands_and_moves_nothing(outcome: str | None, status: DisputeStatus) -> None:
    ended = {"status": "RESOLVED", "dispute_outcome": {"outcome_code": outcome}} if outcome else {}
    (fact,) = read("CUSTOMER.DISPUTE.UPDATED", DISPUTE | ended).facts
    assert (fact.kind, fact.provider_txn_id, fact.paid_txn_id) == (
        FactKind.DISPUTED,
        "PP-D-4012",
        "29Y24445UY2083144",
    )
    assert (fact.amount_minor, fact.merchant, fact.out_trade_no) == (4_000, "HERS", "")
    assert fact.occurred_at == datetime(2026, 11, 24, 8, tzinfo=UTC)
    due = None if outcome else datetime(2026, 12, 4, 8, tzinfo=UTC)
    assert fact.dispute == Dispute(status=status, reason="UNAUTHORISED", respond_by=due)


LINE = {
    "transaction_id": "8R",
    "transaction_status": "S",
    "transaction_initiation_date": "2026-11-24T08:00:00Z",
}


@pytest.mark.parametrize(
    ("code", "value", "kind"),
    [
        ("T1201", "-100.00", FactKind.TAKEN),
        ("T1106", "-100.00", FactKind.TAKEN),
        ("T1202", "100.00", FactKind.RETURNED),
        ("T1205", "100.00", FactKind.RETURNED),
        ("T1207", "-100.00", FactKind.TAKEN),
        ("T1208", "100.00", FactKind.RETURNED),
        ("T1110", "-100.00", None),
        ("T1111", "100.00", None),
        ("T0106", "-20.00", None),
    ],
)
def test_the_bill_lists_what_disputes_moved_and_no_hold_or_fee(
    code: str, value: str, kind: FactKind | None
) -> None:
    about = {"transaction_event_code": code, "paypal_reference_id": "29Y24445UY2083144"}
    line = bill_line({**LINE, **about, "transaction_amount": {"currency_code": "USD", "value": value}})
    assert (line and line.kind) == kind
    if line is not None:
        assert (line.amount_minor, line.provider_txn_id, line.out_trade_no) == (10_000, "8R", "")
        assert line.paid_txn_id == "29Y24445UY2083144"


@pytest.mark.parametrize(("currency", "value", "minor"), [("MYR", "-120.50", 12_050), ("HUF", "1250", 125_000)])
def test_a_currency_of_another_shop_at_the_account_keeps_no_bill_from_being_read(
    currency: str, value: str, minor: int
) -> None:
    entry = {**LINE, "transaction_event_code": "T0006", "invoice_id": "theirs"}
    line = bill_line({**entry, "transaction_amount": {"currency_code": currency, "value": value}})
    assert line is not None
    assert (line.amount_minor, line.currency) == (minor, currency)
    with pytest.raises(ValueError, match="not an amount"):
        bill_line({**entry, "transaction_amount": {"currency_code": currency, "value": "1,250"}})


def test_a_genuine_event_of_another_shape_is_malformed() -> None:
    with pytest.raises(NotificationMalformed, match="not a readable notification: KeyError"):
        read("PAYMENT.CAPTURE.COMPLETED", {name: CAPTURE[name] for name in ("id", "invoice_id", "custom_id")})


def test_an_old_and_a_new_certificate_are_both_good_until_one_ends() -> None:
    both = account(certificates=certificate(days=-1) + certificate(NEXT_KEY))
    both.read_notification(headers=signed(BODY, key=NEXT_KEY), body=BODY, now=NOW)
    with pytest.raises(SignatureInvalid, match="does not verify"):
        both.read_notification(headers=signed(BODY), body=BODY, now=NOW)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (signed(BODY, webhook_id="another"), "does not verify"),
        (signed(BODY, key=NEXT_KEY), "does not verify"),
        (signed(BODY, at="2026-11-20T12:00:00Z"), "stale"),
        (signed(BODY, at="2026-11-24T12:05:00Z"), "of the future"),
        (signed(BODY, at="2026-11-24T12:00:00"), "time is none"),
        (signed(BODY, at="yesterday"), "time is none"),
        (signed(BODY) | {"PAYPAL-AUTH-ALGO": "SHA1withRSA"}, "not signed as PayPal signs"),
        ({}, "not signed as PayPal signs"),
    ],
)
def test_what_paypal_did_not_sign_for_us_now_is_refused(headers: dict[str, str], why: str) -> None:
    with pytest.raises(SignatureInvalid, match=why):
        account().read_notification(headers=headers, body=BODY, now=NOW)


TOKEN = "/v1/oauth2/token"
Answer = tuple[int, object]


@pytest.fixture
def platform(company: Company) -> Company:
    company.says[TOKEN] = company.says["/token"] = (200, {"access_token": "A21", "expires_in": 100})
    return company


def order(status: str, *captures: str, custom_id: str = "payonce") -> Answer:
    unit = {
        "invoice_id": "0193",
        "custom_id": custom_id,
        "amount": CAPTURE["amount"],
        "payments": {"captures": [{**CAPTURE, "status": capture} for capture in captures]},
    }
    return 200, {"id": "89T", "status": status, "purchase_units": [unit]}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (order("PAYER_ACTION_REQUIRED"), TradeStatus.PENDING),
        (order("APPROVED"), TradeStatus.APPROVED),
        (order("COMPLETED", "COMPLETED"), TradeStatus.PAID),
        (order("COMPLETED", "PARTIALLY_REFUNDED"), TradeStatus.PAID),
        (order("COMPLETED", "DECLINED", "COMPLETED", custom_id="payonce:closed"), TradeStatus.PAID),
        (order("COMPLETED", "PENDING"), TradeStatus.PENDING),  # an eCheck, or under review
        (order("COMPLETED", "DECLINED"), TradeStatus.CLOSED),
        (order("VOIDED"), TradeStatus.CLOSED),
        (order("APPROVED", custom_id="payonce:closed"), TradeStatus.CLOSED),
    ],
)
def test_an_order_is_read_and_never_captured_by_a_question_nor_twice(
    platform: Company, answer: Answer, status: TradeStatus
) -> None:
    platform.says[""], ours, names = answer, account(platform.url), {"out_trade_no": "0193", "reference": "89T"}
    found = ours.query(**names)
    assert found.status is status
    if status in (TradeStatus.PAID, TradeStatus.CLOSED):
        assert ours.capture(**names) == found
    assert {*platform.calls} == {"POST /v1/oauth2/token", "GET /v2/checkout/orders/89T"}


def test_an_order_that_paypal_does_not_know_is_closed_and_no_error(platform: Company) -> None:
    """Its number never reached us, so it is not asked for; or PayPal has dropped it."""
    refusal = {"name": "RESOURCE_NOT_FOUND", "details": [{"issue": "INVALID_RESOURCE_ID"}]}
    platform.says[""] = (404, refusal)
    ours = account(platform.url)
    for reference, calls in (("", 0), ("89T", 3)):
        assert ours.query(out_trade_no="0193", reference=reference).status is TradeStatus.NOT_FOUND
        assert ours.close(out_trade_no="0193", reference=reference).status is TradeStatus.CLOSED
        assert len(platform.calls) == calls


def test_a_token_is_used_until_shortly_before_it_ends(platform: Company) -> None:
    now = [1000.0]
    send, login = partial(ask, client(timeout_seconds=5), nullcontext), httpx.BasicAuth("us", "hush")
    bearer = Bearer(send, f"{platform.url}/token", login, clock=lambda: now[0])
    platform.says[""] = (200, {})
    for moment, tokens in ((1000.0, 1), (1039.0, 1), (1040.0, 2)):
        now[0] = moment
        bearer.call("GET", f"{platform.url}/order")
        assert platform.calls.count("POST /token") == tokens
    platform.says[""] = (401, {})
    with pytest.raises(ProviderUnavailable, match="does not take our token"):
        bearer.call("GET", f"{platform.url}/order")
    assert platform.calls[-3:] == ["GET /order", "POST /token", "GET /order"]  # once with a new one
    platform.says[""] = (200, [])
    with pytest.raises(OutcomeUnknown, match="cannot be read"):
        bearer.call("GET", f"{platform.url}/order")
    assert platform.calls.count("POST /token") == 4
    assert "hush" not in repr(login)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, "PREVIOUS_REQUEST_IN_PROGRESS"),
        (422, "PAYPAL_REQUEST_ID_PREVIOUSLY_USED"),
        (422, "DUPLICATE_INVOICE_ID"),
    ],
)
def test_a_refund_whose_number_is_in_use_may_have_moved(platform: Company, status: int, code: str) -> None:
    platform.says[""] = order("COMPLETED", "COMPLETED")
    refusal = {"name": "UNPROCESSABLE_ENTITY", "details": [{"issue": code}]}
    platform.says[f"/v2/payments/captures/{CAPTURE['id']}/refund"] = (status, refusal)
    with pytest.raises(OutcomeUnknown):
        refund(account(platform.url), out_trade_no="0193", currency="USD", reference="89T")
    assert platform.calls[-1].endswith("/refund")


@pytest.mark.parametrize("token", [(401, {}), (500, {}), (200, {"access_token": "A21"})])
def test_without_a_token_nothing_was_sent(platform: Company, token: Answer) -> None:
    platform.says[TOKEN] = token
    with pytest.raises(ProviderUnavailable, match="gave no token"):
        account(platform.url).query(out_trade_no="0193", reference="89T")
    assert platform.calls == ["POST /v1/oauth2/token"]


@pytest.mark.parametrize(("hours", "is_whole"), [(-1, True), (0, False), (2.5, False), (3, True)])
def test_the_bill_of_a_day_is_read_once_paypal_lists_all_of_it(
    platform: Company, monkeypatch: pytest.MonkeyPatch, hours: float, is_whole: bool
) -> None:
    platform.says[""] = (200, {"transaction_details": [], "total_pages": 0})
    ours, midnight = account(platform.url), datetime(2026, 11, 25, tzinfo=UTC)
    monkeypatch.setattr(ours, "_clock", (midnight + timedelta(hours=hours)).timestamp)
    if is_whole:
        assert ours.bill(day=date(2026, 11, 24)) == ()
    else:
        with pytest.raises(ProviderUnavailable, match="may lack lines for three hours"):
            ours.bill(day=date(2026, 11, 24))


def test_every_wrong_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----")
    fields = {"API_URL": "ftp://paypal", "CLIENT_ID": "us", "CERT_FILE": str(tmp_path / "cert.pem")}
    found = "\n".join(str(problem) for problem in registry.tried("paypal", fields)[1])
    for name in ("MERCHANT_ID", "WEBHOOK_ID", "API_URL", "CLIENT_SECRET", "CERT_FILE"):
        assert f"PAYPAL_{name}" in found
    (tmp_path / "cert.pem").write_bytes(certificate())
    whole = {"API_URL": "https://api-m.paypal.com", "MERCHANT_ID": "m", "WEBHOOK_ID": "w", "CLIENT_SECRET": "s"}
    assert registry.tried("paypal", fields | whole)[1] == []
