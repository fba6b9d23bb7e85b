"""Readers of bytes from outside, and the promises that hold whatever the bytes are.

A reader returns what it made of the bytes (None: refused as it says it refuses), and raises AssertionError, or
anything that nobody expects, where a promise is broken. Nothing here needs a database or a server.
"""

import io
import json
import tempfile
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.conf import settings
from django.test import RequestFactory

from idempotency.errors import Problem
from idempotency.request.keys import canonical, parse_key
from payments.errors import NotificationMalformed, OutcomeUnknown, SignatureInvalid
from payments.providers import registry, rsa
from payments.providers.alipay import bill as alipay_bill
from payments.providers.alipay import signing as alipay_signing
from payments.providers.base import BillLine, Notice
from payments.providers.documents import is_keepable
from payments.providers.wechat import bill as wechat_bill
from payments.sandbox import state
from payments.sandbox.stripe.documents import signature
from payments.sandbox.wechat.certificates import encrypted
from payments.sandbox.wechat.signing import signature_headers
from shop.platform.clientip import client_ip
from tests.sandbox import channels_at

PROXY = "10.0.0.1"
DAY, SELLER = date(2026, 11, 20), "2088000000000000"

Reader = Callable[[bytes], Any]
READERS: dict[str, Reader] = {}
SEEDS: dict[str, list[bytes]] = {}


def reads(*seeds: str | bytes) -> Callable[[Reader], Reader]:
    """Register a reader, with bytes that it takes."""

    def register(reader: Reader) -> Reader:
        READERS[reader.__name__] = reader
        SEEDS[reader.__name__] = [seed.encode() if isinstance(seed, str) else seed for seed in seeds]
        return reader

    return register


@cache
def providers() -> dict[str, Any]:
    """Ours, by channel; nobody calls the addresses that they have."""
    if state._process.keys is None:
        state.open_folder(Path(tempfile.mkdtemp(prefix="payonce-fuzz-")))
    return dict(registry.build(channels_at("http://127.0.0.1:9")))


@reads("k1", '"k1"', r'"a \"b\" \\"', "0d2f4d0b-9c5e-4c3a-8a55-b0f5a1a3b2c1")
def key(data: bytes) -> str | None:
    """`Idempotency-Key`: 1 to 255 visible ASCII characters, however it is quoted; else 400."""
    try:
        found = parse_key(data.decode("latin-1"))
    except Problem as problem:
        if problem.status != 400:
            raise
        return None
    assert 1 <= len(found) <= 255
    assert found.isascii()
    assert all("!" <= character <= "~" for character in found)
    escaped = found.replace("\\", r"\\").replace('"', r"\"")
    assert parse_key(f'"{escaped}"') == found
    return found


@reads('{"a": [1, 1.0, "x"], "b": null}', '{"b":{},"a":[]}', '{"a":1,"a":2}', b"\xff", "[[[[]]]]")
def body(data: bytes) -> bytes:
    """Any body of JSON can be compared; white space around it is no other request."""
    found, spaced = (
        canonical(RequestFactory().post("/", sent, content_type="application/json"))
        for sent in (data, b" \n" + data + b"\t ")
    )
    try:
        json.loads(data.decode())
    except (ValueError, RecursionError):
        return found
    assert spaced == found
    return found


@reads("203.0.113.7", "203.0.113.7, 10.0.0.2", "::ffff:203.0.113.7", "fe80::1%eth0, 10.0.0.3", "unknown, ")
def forwarded_for(data: bytes) -> str:
    """`X-Forwarded-For` through a trusted proxy: an address, and no proxy's but the peer's."""
    before, settings.TRUSTED_PROXIES = settings.TRUSTED_PROXIES, [ip_network("10.0.0.0/8")]
    try:
        found = client_ip({"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": data.decode("latin-1")})
    finally:
        settings.TRUSTED_PROXIES = before
    assert found == PROXY or ip_address(found) not in ip_network("10.0.0.0/8")
    return found


@reads("t=1790000000,v1=00\n{}", "WECHATPAY2-SHA256-RSA2048\n{}", "x\nsign=QUJD&app_id=1&notify_id=n")
def forged(data: bytes) -> None:
    """A notification by somebody who has no key is refused by every channel."""
    header, _, content = data.partition(b"\n")
    value = header.decode("latin-1")
    headers = {
        "Stripe-Signature": value,
        "Wechatpay-Timestamp": str(int(time.time())),
        "Wechatpay-Nonce": value,
        "Wechatpay-Serial": state.keys().platform_serial if providers() else "",
        "Wechatpay-Signature": value,
    }
    for channel in providers():
        assert _read(channel, headers, content) is None, channel


@reads(
    '{"appid":"ours","mchid":"1","out_trade_no":"a","transaction_id":"4","success_time":"2026-11-20T10:00:00+08:00",'
    '"amount":{"total":1990,"currency":"CNY"}}',
    '{"appid":"ours","mchid":"1","out_trade_no":"a","transaction_id":"4","success_time":"0001-01-01T00:00:00+14:00",'
    '"amount":{"total":1990,"currency":"CNY"}}',
    '{"mchid":"1","out_trade_no":"a","transaction_id":"4","refund_id":"5","out_refund_no":"b",'
    '"amount":{"total":1990,"refund":990}}',
)
def wechat_content(data: bytes) -> Notice | None:
    """What WeChat encrypted and signed, of whatever shape: facts, or refused as not readable."""
    kind = "REFUND.SUCCESS" if b"refund_id" in data else "TRANSACTION.SUCCESS"
    assert providers()
    data = data.replace(b'"ours"', json.dumps(state.keys().settings["WECHAT_APP_ID"]).encode())
    resource = encrypted(data, associated_data="transaction")
    return wechat_envelope(json.dumps({"id": "wx-1", "event_type": kind, "resource": resource}).encode())


@reads(
    '{"id":"wx-1","event_type":"TRANSACTION.SUCCESS","resource":{"ciphertext":"","nonce":"","associated_data":""}}'
)
def wechat_envelope(data: bytes) -> Notice | None:
    """The envelope around it, signed."""
    assert providers()
    return _read("wechat", signature_headers(data, with_key=""), data)


@reads(
    "notify_id=n&trade_status=TRADE_SUCCESS&out_trade_no=a&trade_no=2&total_amount=19.90"
    "&gmt_payment=2026-11-20+10%3A00%3A00",
    "notify_id=n&trade_status=TRADE_SUCCESS&out_trade_no=a&trade_no=2&total_amount=1"
    "&gmt_payment=0001-01-01+00%3A00%3A00",
    "notify_id=n&trade_status=TRADE_CLOSED&out_trade_no=a&refund_fee=9.90",
)
def alipay_form(data: bytes) -> Notice | None:
    """Alipay's parameters, signed."""
    assert providers()
    given = dict(parse_qsl(data.decode("latin-1"), keep_blank_values=True))
    given |= {"app_id": state.keys().settings["ALIPAY_APP_ID"], "charset": "utf-8", "sign_type": "RSA2"}
    covered = alipay_signing.signed_text(given, without=frozenset({"sign", "sign_type"}))
    given["sign"] = rsa.sign(covered, state.keys().alipay)
    return _read("alipay", {}, urlencode(given).encode())


@reads(
    '{"id":"evt_1","object":"event","type":"payment_intent.succeeded","created":1790000000,"livemode":false,'
    '"data":{"object":{"id":"pi_1","metadata":{"out_trade_no":"a"},"amount_received":1990,"currency":"cny"}}}',
    '{"id":"evt_2","object":"event","type":"refund.created","created":1790000000,"livemode":false,'
    '"data":{"object":{"id":"re_1","metadata":{"out_trade_no":"a","out_refund_no":"b"},"amount":990,'
    '"currency":"cny","status":"succeeded","created":1790000000,"payment_intent":"pi_1"}}}',
)
def stripe_event(data: bytes) -> Notice | None:
    """An event of Stripe's, signed."""
    assert providers()
    secret = state.keys().settings["STRIPE_WEBHOOK_SECRET"]
    return _read("stripe", {"Stripe-Signature": signature(data, secret=secret, timestamp=int(time.time()))}, data)


@reads('{"alipay_trade_query_response":{"code":"10000"},"sign":"QUJD"}', '{"error_response":{},"sign":""}')
def alipay_answer(data: bytes) -> None:
    """An answer to a query by somebody who has no key: the outcome is unknown."""
    try:
        alipay_signing.genuine_answer(data, "alipay.trade.query", providers()["alipay"]._trust, now=time.time())
    except OutcomeUnknown:
        return
    raise AssertionError("an answer that nobody signed was believed")


@reads(
    "\ufeff交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,"
    "应结订单金额,代金券金额,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,商品名称,商户数据包,手续费,费率,"
    "订单金额,申请退款金额,费率备注\r\n"
    "`2026-11-20 10:00:00,`wx1,`1,`0,`,`42,`a,`o,`NATIVE,`SUCCESS,`OTHERS,`CNY,`19.90,`0.00,`0,`0,`0.00,`0.00,`,`,"
    "`Mug,`,`0.12,`0.60%,`19.90,`0.00,`\r\n"
    "总交易单数,应结订单总金额\r\n`1,`19.90\r\n"
)
def wechat_day(data: bytes) -> tuple[BillLine, ...] | None:
    """WeChat's bill of a day: lines that move money, or ValueError."""
    return _lines(lambda: wechat_bill.parse(data))


@reads(
    "#支付宝业务明细查询\n#账号：[20880000000000000156]\n支付宝交易号,商户订单号,业务类型,完成时间,订单金额（元）,退款批次号/请求号\n"
    "2026,a,交易,2026-11-20 10:00:00,19.90,\n2026,a,退款,2026-11-20 11:00:00,-9.90,b\n",
    "支付宝交易号,商户订单号,业务类型,完成时间,订单金额（元）,退款批次号/请求号\n2026,a,交易,0001-01-01 00:00:00,1,\n",
)
def alipay_day(data: bytes) -> tuple[BillLine, ...] | None:
    """A table of Alipay's bill, given in UTF-8, packed as Alipay packs it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("detail.csv", data.decode("utf-8", "replace").encode("gb18030", "replace"))
    return alipay_zip(packed.getvalue())


def _a_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("detail.csv", "支付宝交易号,商户订单号\n".encode("gb18030"))
    return packed.getvalue()


@reads(_a_zip())
def alipay_zip(data: bytes) -> tuple[BillLine, ...] | None:
    """The packed bill itself; no more is unpacked than is allowed."""
    return _lines(lambda: alipay_bill.read_bill(data, day=DAY, seller_id=SELLER, max_unpacked_bytes=1_000_000))


def _read(channel: str, headers: dict[str, str], content: bytes) -> Notice | None:
    """As the webhook has it read; what is taken can be kept and folded."""
    try:
        notice: Notice = providers()[channel].read_notification(
            headers=headers, body=content, now=datetime.now(UTC)
        )
    except (SignatureInvalid, NotificationMalformed):
        return None
    assert is_keepable(notice.notification_id, most=128)
    assert is_keepable(notice.event_type, most=64)
    for fact in notice.facts:
        assert fact.amount_minor >= 0
        if fact.occurred_at is not None:
            assert fact.occurred_at.utcoffset() is not None
            fact.occurred_at.astimezone(UTC)
    return notice


def _lines(read: Callable[[], tuple[BillLine, ...]]) -> tuple[BillLine, ...] | None:
    try:
        lines = read()
    except ValueError:
        return None
    for line in lines:
        assert line.amount_minor > 0
        assert line.out_trade_no
        assert line.provider_txn_id
        if line.occurred_at is not None:
            line.occurred_at.astimezone(UTC)
    return lines
