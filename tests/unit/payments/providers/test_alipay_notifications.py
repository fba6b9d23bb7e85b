"""Which of Alipay's notifications are believed, and what they say."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from payments.errors import NotificationMalformed, SignatureInvalid
from payments.providers import rsa
from payments.providers.alipay.client import Alipay
from payments.providers.alipay.signing import signed_text
from payments.providers.base import FactKind, Notice
from payments.sandbox import keys

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NUMBER = "d" * 32
Form = dict[str, str | None]


pytestmark = pytest.mark.usefixtures("no_network")


def form(platform: keys.Keys, **changed: str | None) -> dict[str, str]:
    """A notification's parameters; None leaves one out."""
    given: Form = {
        "notify_id": "n-1",
        "notify_type": "trade_status_sync",
        "app_id": platform.settings["ALIPAY_APP_ID"],
        "seller_id": platform.settings["ALIPAY_SELLER_ID"],
        "charset": "utf-8",
        "version": "1.0",
        "sign_type": "RSA2",
        "out_trade_no": NUMBER,
        "trade_no": "2026112022001",
        "trade_status": "TRADE_SUCCESS",
        "total_amount": "19.90",
        "receipt_amount": "19.90",
        "gmt_payment": "2026-11-20 19:59:58",
        "subject": "杯子 & 100% = {more}+",
        "passback_params": "",
        **changed,
    }
    return {name: value for name, value in given.items() if value is not None}


def signed(platform: keys.Keys, given: dict[str, str], *, key: Any = None, encoding: str = "utf-8") -> bytes:
    """The form, genuinely signed; neither `sign` nor `sign_type` is covered."""
    covered = signed_text(given, without=frozenset({"sign", "sign_type"})).decode().encode(encoding)
    return urlencode({**given, "sign": rsa.sign(covered, key or platform.alipay)}, encoding=encoding).encode()


def read(alipay: Alipay, body: bytes) -> Notice:
    return alipay.read_notification(headers={}, body=body, now=NOW)


def test_unknown_parameters_are_covered_by_the_signature(alipay: Alipay, platform: keys.Keys) -> None:
    body = signed(platform, form(platform, zz_new="1", aa_new="新 = & +"))
    assert read(alipay, body).facts
    with pytest.raises(SignatureInvalid, match="does not verify"):
        read(alipay, body.replace(b"zz_new=1", b"zz_new=2"))


@pytest.mark.parametrize("charset", ["GBK", "GB2312", "gb18030"])
def test_a_notification_in_a_charset_of_china(alipay: Alipay, platform: keys.Keys, charset: str) -> None:
    given = form(platform, charset=charset, subject="杯子 & 100%")
    body = signed(platform, given, encoding="gbk")
    assert read(alipay, body).facts[0].out_trade_no == NUMBER
    raw = body.replace(urlencode({"s": "杯子"}, encoding="gbk")[2:].encode(), "杯子".encode("gbk"))
    assert raw != body
    assert read(alipay, raw) == read(alipay, body)
    with pytest.raises(SignatureInvalid, match="does not verify"):
        read(alipay, body.replace(b"%B1%AD", b"%B1%AE"))


Forge = Callable[[keys.Keys], bytes]


def of(**changed: str | None) -> Forge:
    return lambda platform: signed(platform, form(platform, **changed))


def altered(**changed: str) -> Forge:
    return lambda platform: urlencode(dict(parse_qsl(of()(platform).decode())) | changed).encode()


def twice(name: str, value: str) -> Forge:
    return lambda platform: of()(platform) + f"&{urlencode({name: value})}".encode()


def signed_as_a_request(platform: keys.Keys) -> bytes:
    """Whose signature covers `sign_type` too."""
    given = form(platform)
    return urlencode({**given, "sign": rsa.sign(signed_text(given), platform.alipay)}).encode()


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (lambda platform: b"", "sign_type"),
        *((of(sign_type=value), "sign_type") for value in ("RSA", "rsa2", "", None)),
        *((of(app_id=value), "another application") for value in ("2014000000000000", "", None)),
        *((twice(name, ""), "twice") for name in ("total_amount", "app_id", "sign", "sign_type", "notify_id")),
        (twice("total_amount", "0.01"), "twice"),
        (twice("total_amount", "19.90"), "twice"),
        (twice("added", "1"), "does not verify"),
        (lambda platform: urlencode(form(platform)).encode(), "does not verify"),
        *((altered(sign=value), "does not verify") for value in ("", "QUJD", "not base64!", "签名")),
        (lambda platform: signed(platform, form(platform), key=platform.app), "does not verify"),
        (signed_as_a_request, "does not verify"),
        (altered(total_amount="0.01"), "does not verify"),
        (altered(out_trade_no="e" * 32), "does not verify"),
        (altered(trade_status="TRADE_CLOSED"), "does not verify"),
    ],
)
def test_what_alipay_did_not_sign_for_us(alipay: Alipay, platform: keys.Keys, forge: Forge, why: str) -> None:
    with pytest.raises(SignatureInvalid, match=why):
        read(alipay, forge(platform))


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({"trade_status": "TRADE_FINISHED"}, [FactKind.PAID]),
        ({"trade_status": "TRADE_SUCCESS", "refund_fee": "9.90"}, [FactKind.PAID]),
        ({"trade_status": "TRADE_CLOSED", "refund_fee": "19.90"}, [FactKind.PAID, FactKind.REFUNDED]),
        ({"trade_status": "TRADE_CLOSED", "refund_fee": "9.90"}, [FactKind.PAID]),
        ({"trade_status": "TRADE_FINISHED", "refund_fee": "19.90"}, [FactKind.PAID]),
        ({"trade_status": "TRADE_CLOSED", "gmt_refund": "2026-11-20 20:00:00.123"}, [FactKind.PAID]),
        ({"trade_status": "TRADE_CLOSED", "gmt_payment": None}, [FactKind.CLOSED]),
        ({"trade_status": "TRADE_CLOSED", "gmt_payment": None, "refund_fee": "0.00"}, [FactKind.CLOSED]),
        ({"trade_status": "WAIT_BUYER_PAY", "gmt_payment": None}, []),
        ({"trade_status": "TRADE_PENDING"}, []),
        ({"gmt_payment": None}, [FactKind.PAID]),
    ],
)
def test_states(alipay: Alipay, platform: keys.Keys, changed: Form, kinds: list[FactKind]) -> None:
    notice = read(alipay, signed(platform, form(platform, **changed)))
    assert [fact.kind for fact in notice.facts] == kinds
    assert {fact.out_trade_no for fact in notice.facts} <= {NUMBER}


CHINA = timezone(timedelta(hours=8))


def test_a_payment_and_a_whole_refund_are_read(alipay: Alipay, platform: keys.Keys) -> None:
    back = {"trade_status": "TRADE_CLOSED", "refund_fee": "19.90", "gmt_refund": "2026-11-20 20:00:00.123"}
    notice = read(alipay, signed(platform, form(platform, **back)))
    assert (notice.notification_id, notice.event_type) == ("n-1", "TRADE_CLOSED")
    paid, refunded = notice.facts
    assert (paid.kind, paid.merchant) == (FactKind.PAID, platform.settings["ALIPAY_SELLER_ID"])
    assert (paid.out_trade_no, paid.provider_txn_id) == (NUMBER, "2026112022001")
    assert (paid.amount_minor, paid.currency) == (1990, "CNY")
    assert paid.occurred_at == datetime(2026, 11, 20, 19, 59, 58, tzinfo=CHINA)
    assert (refunded.provider_txn_id, refunded.out_refund_no, refunded.is_whole) == (NUMBER, "", True)
    assert (refunded.amount_minor, refunded.paid_txn_id) == (1990, paid.provider_txn_id)
    assert refunded.occurred_at == datetime(2026, 11, 20, 20, tzinfo=CHINA)


@pytest.mark.parametrize(
    "content",
    [
        *(b"{}", b"a&b", b"\xff\xfe=1", b"s=%B1%AD", b"&".join(b"p%d=1" % n for n in range(201))),  # no form
        *({name: None} for name in ("notify_id", "trade_status", "out_trade_no", "trade_no", "total_amount")),
        *({"total_amount": "1e3"}, {"gmt_payment": "yesterday"}, {"charset": "rot13"}),
        {"trade_status": "TRADE_CLOSED", "out_trade_no": None},
        {"trade_status": "TRADE_CLOSED", "refund_fee": "1e3"},
        {"trade_status": "TRADE_CLOSED", "refund_fee": "19.90", "gmt_refund": "yesterday"},
    ],
)
def test_genuine_but_not_of_the_documented_shape(
    alipay: Alipay, platform: keys.Keys, content: Form | bytes
) -> None:
    body = content if isinstance(content, bytes) else signed(platform, form(platform, **content))
    with pytest.raises(NotificationMalformed):
        read(alipay, body)
