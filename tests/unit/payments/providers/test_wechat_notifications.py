"""WeChat's notifications that count: genuine, of now, by a key we hold, and readable."""

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


OF_PAYMENT = {
    **{"kind": FactKind.PAID, "merchant": "1900000001", "out_trade_no": NUMBER, "amount_minor": 1990},
    **{"currency": "CNY", "provider_txn_id": "4200000000000001"},
    "occurred_at": datetime(2026, 9, 21, 21, 33, 20, tzinfo=timezone(timedelta(hours=8))),
}
OF_REFUND = {
    **{"kind": FactKind.REFUNDED, "amount_minor": 990, "out_refund_no": "c" * 32, "currency": "CNY"},
    **{"paid_txn_id": "4200000000000001", "paid_minor": 1990, "occurred_at": None},
}
ANOTHER = "wx0000000000000000"
# the platform's own coupons are not our loss: what counts is what the order cost
STATED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("TRANSACTION.SUCCESS", PAID, OF_PAYMENT),
    ("TRANSACTION.SUCCESS", {**PAID, "amount": {"total": 1990}}, OF_PAYMENT),
    ("TRANSACTION.SUCCESS", {**PAID, "appid": None}, OF_PAYMENT),
    ("TRANSACTION.SUCCESS", {**PAID, "trade_state": "REFUND"}, OF_PAYMENT),  # part of it went back
    ("TRANSACTION.SUCCESS", {**PAID, "appid": ANOTHER}, OF_PAYMENT | {"merchant": f"1900000001/{ANOTHER}"}),
    ("REFUND.SUCCESS", REFUNDED, OF_REFUND),
    ("REFUND.SUCCESS", {**REFUNDED, "amount": {**REFUNDED["amount"], "currency": None}}, OF_REFUND),
    ("REFUND.SUCCESS", {**REFUNDED, "appid": ANOTHER}, OF_REFUND | {"merchant": f"1900000001/{ANOTHER}"}),
]


@pytest.mark.parametrize(("event", "content", "stated"), STATED)
def test_what_a_notification_states(
    wechat: WeChatPay, platform: keys.Keys, event: str, content: dict[str, Any], stated: dict[str, Any]
) -> None:
    notice = read(wechat, platform, envelope(platform, content, event=event))
    (fact,) = notice.facts
    assert (notice.notification_id, notice.event_type) == ("n-1", event)
    assert {name: getattr(fact, name) for name in stated} == stated


def test_an_application_and_associated_data_may_be_missing(wechat: WeChatPay, platform: keys.Keys) -> None:
    content = json.dumps(PAID).encode()
    inside = encrypted(content, associated_data="") | {"associated_data": None}
    for body in (envelope(platform, content), envelope(platform, PAID, **inside)):
        assert read(wechat, platform, body).facts[0].merchant == "1900000001"


@pytest.mark.parametrize(
    ("content", "resource"),
    [
        (PAID, {"algorithm": "AEAD_AES_128_GCM"}),
        *((PAID, {"ciphertext": value}) for value in ("%%%", "QUJD", None)),
        *((PAID, {"nonce": value}) for value in ("other bytes!", "short", 5)),
        *((PAID, {"associated_data": value}) for value in ("refund", None)),
        *((content, {}) for content in (b"not json", b"\xff", [], "text", {})),
        ({**PAID, "transaction_id": ""}, {}),
        ({**PAID, "out_trade_no": 7}, {}),
        ({**PAID, "mchid": None}, {}),
        *(({**PAID, "amount": {"total": total, "currency": "CNY"}}, {}) for total in ("1990", -1, True, 19.9)),
        ({**PAID, "amount": 1990}, {}),
        *(
            ({**PAID, "success_time": time}, {})
            for time in ("yesterday", "2026-09-21T21:33:20", "0001-01-01T00:00:00+08:00")
        ),
    ],
)
def test_genuine_but_not_to_be_read(
    wechat: WeChatPay, platform: keys.Keys, content: Any, resource: dict[str, Any]
) -> None:
    with pytest.raises(NotificationMalformed):
        read(wechat, platform, envelope(platform, content, **resource))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"\xff\xfe", b'{"resource":[]}', b'{"resource":{"algorithm":1}}']
)
def test_genuine_but_no_envelope(wechat: WeChatPay, platform: keys.Keys, body: bytes) -> None:
    with pytest.raises(NotificationMalformed):
        read(wechat, platform, body)
