"""Which of WeChat's notifications are believed: genuine, of now, by a key that we hold, and readable."""

import json
import math
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from payments.errors import NotificationMalformed, SignatureInvalid
from payments.providers import rsa
from payments.providers.base import FactKind, Notice, RefundResult, RefundStatus
from payments.providers.wechat.client import WeChatPay
from payments.providers.wechat.signing import answer_message
from payments.sandbox import keys, state
from payments.sandbox.wechat.certificates import encrypted

SENT_AT = int(time.time())  # the platform's certificate is as young as this run
NOW = datetime.fromtimestamp(SENT_AT, UTC)
NUMBER = "b" * 32
PAID: dict[str, Any] = {
    "mchid": "1900000001",
    "out_trade_no": NUMBER,
    "transaction_id": "4200000000000001",
    "trade_state": "SUCCESS",
    "success_time": "2026-09-21T21:33:20+08:00",
    "amount": {"total": 1990, "payer_total": 1500, "currency": "CNY"},
}
REFUNDED: dict[str, Any] = {
    "mchid": "1900000001",
    "out_trade_no": NUMBER,
    "out_refund_no": "c" * 32,
    "transaction_id": "4200000000000001",
    "refund_id": "5030000000000001",
    "refund_status": "SUCCESS",
    "amount": {"total": 1990, "refund": 990},
}


pytestmark = pytest.mark.usefixtures("no_network")


def envelope(platform: keys.Keys, content: Any, *, event: str = "TRANSACTION.SUCCESS", **resource: Any) -> bytes:
    """A notification's body; `resource` changes what stands in its encrypted part."""
    if isinstance(content, dict) and event.startswith("TRANSACTION."):
        content = {"appid": platform.settings["WECHAT_APP_ID"], **content}
    plain = content if isinstance(content, bytes) else json.dumps(content).encode()
    inside = encrypted(plain, associated_data="transaction") | resource
    return json.dumps({"id": "n-1", "event_type": event, "resource": inside}).encode()


def signature_headers(platform: keys.Keys, body: bytes, *, sent_at: int | str = SENT_AT) -> dict[str, str]:
    message = answer_message(timestamp=str(sent_at), nonce="nonce", body=body)
    return {
        "Wechatpay-Timestamp": str(sent_at),
        "Wechatpay-Nonce": "nonce",
        "Wechatpay-Serial": platform.platform_serial,
        "Wechatpay-Signature": rsa.sign(message, platform.platform),
    }


def read(wechat: WeChatPay, platform: keys.Keys, body: bytes, **changed: str) -> Notice:
    """Read a body that was signed now; `changed` are headers without their prefix."""
    headers = {f"Wechatpay-{name}": value for name, value in changed.items()}
    return wechat.read_notification(headers=signature_headers(platform, body) | headers, body=body, now=NOW)


def test_a_payment_is_read(wechat: WeChatPay, platform: keys.Keys) -> None:
    body = envelope(platform, PAID)
    notice = read(wechat, platform, body)
    (fact,) = notice.facts
    assert (notice.notification_id, notice.event_type) == ("n-1", "TRANSACTION.SUCCESS")
    assert (fact.kind, fact.merchant, fact.out_trade_no) == (FactKind.PAID, "1900000001", NUMBER)
    # the platform's own coupons are not our loss: what counts is what the order cost
    assert (fact.amount_minor, fact.currency, fact.provider_txn_id) == (1990, "CNY", "4200000000000001")
    assert fact.occurred_at == datetime(2026, 9, 21, 21, 33, 20, tzinfo=timezone(timedelta(hours=8)))


def test_optional_members_may_be_missing(wechat: WeChatPay, platform: keys.Keys) -> None:
    content = {"appid": platform.settings["WECHAT_APP_ID"], **PAID, "amount": {"total": 1990}}
    inside = encrypted(json.dumps(content).encode(), associated_data="") | {"associated_data": None}
    body = envelope(platform, PAID, **inside)
    (fact,) = read(wechat, platform, body).facts
    assert (fact.amount_minor, fact.currency) == (1990, "CNY")
    refund = {**REFUNDED, "amount": {**REFUNDED["amount"], "currency": None}}
    (fact,) = read(wechat, platform, envelope(platform, refund, event="REFUND.SUCCESS")).facts
    assert (fact.amount_minor, fact.currency) == (990, "CNY")


def test_a_refund_is_read_with_the_payment_that_it_takes_from(wechat: WeChatPay, platform: keys.Keys) -> None:
    body = envelope(platform, REFUNDED, event="REFUND.SUCCESS")
    (fact,) = read(wechat, platform, body).facts
    assert (fact.kind, fact.amount_minor, fact.out_refund_no) == (FactKind.REFUNDED, 990, "c" * 32)
    assert (fact.paid_txn_id, fact.paid_minor, fact.currency) == ("4200000000000001", 1990, "CNY")
    assert fact.occurred_at is None


def test_a_refund_that_did_not_reach_the_payer_is_shown(wechat: WeChatPay, platform: keys.Keys) -> None:
    body = envelope(platform, {**REFUNDED, "refund_status": "ABNORMAL"}, event="REFUND.ABNORMAL")
    notice = read(wechat, platform, body)
    assert notice.facts == ()
    assert notice.refund == RefundResult(status=RefundStatus.STUCK, message="ABNORMAL", out_refund_no="c" * 32)


@pytest.mark.parametrize(
    ("event", "content"),
    [
        *(("TRANSACTION.SUCCESS", {**PAID, "trade_state": state}) for state in ("NOTPAY", "WHAT", None)),
        *(("REFUND.SUCCESS", {**REFUNDED, "refund_status": state}) for state in ("PROCESSING", "CLOSED", 1)),
        ("REFUND.CLOSED", {}),
        ("PAYSCORE.USER_OPEN_SERVICE", {}),
    ],
)
def test_what_did_not_happen_or_moves_no_money_is_no_fact(
    wechat: WeChatPay, platform: keys.Keys, event: str, content: dict[str, Any]
) -> None:
    notice = read(wechat, platform, envelope(platform, content, event=event))
    assert (notice.event_type, notice.facts) == (event, ())


@pytest.mark.parametrize("more", [{"appid": None}, {}, {"trade_state": "REFUND"}])
def test_a_payment_need_not_name_our_application_and_stays_one_when_part_went_back(
    wechat: WeChatPay, platform: keys.Keys, more: dict[str, object]
) -> None:
    (fact,) = read(wechat, platform, envelope(platform, json.dumps({**PAID, **more}).encode())).facts
    assert (fact.kind, fact.merchant) == (FactKind.PAID, "1900000001")


@pytest.mark.parametrize(
    ("event", "content"),
    [("TRANSACTION.SUCCESS", PAID), ("REFUND.SUCCESS", REFUNDED)],
)
def test_another_application_is_another_seller(
    wechat: WeChatPay, platform: keys.Keys, event: str, content: dict[str, Any]
) -> None:
    """The signature is genuine, so WeChat must not send it for ever."""
    theirs = envelope(platform, {**content, "appid": "wx0000000000000000"}, event=event)
    (fact,) = read(wechat, platform, theirs).facts
    assert fact.merchant == f"{content['mchid']}/wx0000000000000000"


def test_header_names_in_any_case_and_the_public_key_mode(wechat: WeChatPay, platform: keys.Keys) -> None:
    body = envelope(platform, PAID)
    headers = signature_headers(platform, body)
    lower = {name.lower(): value for name, value in headers.items()}
    message = answer_message(timestamp=str(SENT_AT), nonce="nonce", body=body)
    by_public_key = {
        **headers,
        "Wechatpay-Serial": platform.public_key_id,
        "Wechatpay-Signature": rsa.sign(message, platform.platform_public),
    }
    by_lower_serial = {**headers, "Wechatpay-Serial": platform.platform_serial.lower()}
    for given in (lower, by_public_key, by_lower_serial):
        assert wechat.read_notification(headers=given, body=body, now=NOW).notification_id == "n-1"


@pytest.mark.parametrize(
    "timestamp", ["soon", "1e9", "-5", "1790000000.0", " 1790000000", "9" * 16, "9" * 5000, "１７９", "²"]
)
def test_a_time_stamp_is_a_plain_number(wechat: WeChatPay, platform: keys.Keys, timestamp: str) -> None:
    body = envelope(platform, PAID)
    headers = signature_headers(platform, body, sent_at=timestamp)  # genuine but for the time
    with pytest.raises(SignatureInvalid, match="no time is signed"):
        wechat.read_notification(headers=headers, body=body, now=NOW)


@pytest.mark.parametrize(
    ("skew_seconds", "is_fine"),
    [
        *((seconds, False) for seconds in (-300, 300, 9 * 10**11)),
        (299.1, False),  # a part of a second makes 300 ahead no less
        *((seconds, True) for seconds in (-299, 299)),
    ],
)
def test_less_than_five_minutes_are_fine_both_ways(
    wechat: WeChatPay, platform: keys.Keys, skew_seconds: float, is_fine: bool
) -> None:
    body, ahead = envelope(platform, PAID), math.ceil(skew_seconds)
    headers = signature_headers(platform, body, sent_at=max(0, SENT_AT + ahead))
    now = NOW + timedelta(seconds=ahead - skew_seconds)
    with nullcontext() if is_fine else pytest.raises(SignatureInvalid, match="too far from ours"):
        assert wechat.read_notification(headers=headers, body=body, now=now).facts


PROBE = "WECHATPAY/SIGNTEST/"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        *(
            (lambda own, name=name: {name: ""}, "missing")
            for name in ("Timestamp", "Nonce", "Serial", "Signature")
        ),
        (lambda own: {"Serial": "0" * 40}, "do not hold"),
        (lambda own: {"Serial": "PUB_KEY_ID_0000"}, "do not hold"),
        (lambda own: {"Serial": state.keys().public_key_id}, "does not verify"),  # ours, and another
        (lambda own: {"Signature": PROBE + "A" * 325}, "probe"),
        (lambda own: {"Signature": PROBE + own["Wechatpay-Signature"]}, "probe"),
        *(
            (lambda own, text=text: {"Signature": text}, "does not verify")
            for text in ("not base64!", "签名", "QUJD")
        ),
        (lambda own: {"Nonce": "another"}, "does not verify"),
        (lambda own: {"Timestamp": str(SENT_AT + 1)}, "does not verify"),
    ],
)
def test_forgeries_and_probes(wechat: WeChatPay, platform: keys.Keys, change: Any, why: str) -> None:
    body = envelope(platform, PAID)
    with pytest.raises(SignatureInvalid, match=why):
        read(wechat, platform, body, **change(signature_headers(platform, body)))


@pytest.mark.parametrize(
    "resource",
    [
        {"algorithm": "AEAD_AES_128_GCM"},
        *({"ciphertext": value} for value in ("%%%", "QUJD", None)),
        *({"nonce": value} for value in ("other bytes!", "short", 5)),
        *({"associated_data": value} for value in ("refund", None)),
    ],
)
def test_genuine_but_not_to_be_decrypted(wechat: WeChatPay, platform: keys.Keys, resource: dict[str, Any]) -> None:
    with pytest.raises(NotificationMalformed):
        read(wechat, platform, envelope(platform, PAID, **resource))


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"\xff",
        [],
        "text",
        {},
        {**PAID, "transaction_id": ""},
        {**PAID, "out_trade_no": 7},
        {**PAID, "mchid": None},
        *({**PAID, "amount": {"total": total, "currency": "CNY"}} for total in ("1990", -1, True, 19.9)),
        {**PAID, "amount": 1990},
        *(
            {**PAID, "success_time": time}
            for time in ("yesterday", "2026-09-21T21:33:20", "0001-01-01T00:00:00+08:00")
        ),
    ],
)
def test_genuine_but_not_of_the_documented_shape(wechat: WeChatPay, platform: keys.Keys, content: Any) -> None:
    with pytest.raises(NotificationMalformed):
        read(wechat, platform, envelope(platform, content))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"\xff\xfe", b'{"resource":[]}', b'{"resource":{"algorithm":1}}']
)
def test_genuine_but_no_envelope(wechat: WeChatPay, platform: keys.Keys, body: bytes) -> None:
    with pytest.raises(NotificationMalformed):
        read(wechat, platform, body)
