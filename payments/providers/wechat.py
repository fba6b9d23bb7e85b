"""WeChat Pay API v3, native (QR code) payments: requests, answers and notifications.

Source: WeChat Pay API v3 documentation, "Native payment", "signature", "notification" (read 2026-11). Amounts are
integers in fen. A request without a genuine signature on its answer counts as unknown, not as done.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import httpx

from payments.errors import (
    NotificationMalformed,
    OutcomeUnknown,
    ProviderRejected,
    SignatureInvalid,
)
from payments.providers import rsa
from payments.providers.base import (
    Fact,
    NextAction,
    NextActionType,
    Notice,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
    closed_fact,
)
from payments.providers.transport import Limits, client, reading, send
from payments.providers.wechat_facts import facts_of, paid_fact, refunded_fact, text_of

AUTHORIZATION_SCHEME = "WECHATPAY2-SHA256-RSA2048"
MAX_SKEW_SECONDS = 300
# the platform sends notifications signed with this prefix to see whether we really verify
PROBE_PREFIX = "WECHATPAY/SIGNTEST/"
PUBLIC_KEY_PREFIX = "PUB_KEY_ID_"
CHINA = timezone(timedelta(hours=8))

_NOT_FOUND = frozenset({"ORDER_NOT_EXIST", "ORDERNOTEXIST", "RESOURCE_NOT_EXISTS"})
_TRADE_STATES = {
    "SUCCESS": TradeStatus.PAID,
    "REFUND": TradeStatus.PAID,  # refunded, hence paid before
    "NOTPAY": TradeStatus.PENDING,
    "USERPAYING": TradeStatus.PENDING,
    "ACCEPT": TradeStatus.PENDING,
    "PAYERROR": TradeStatus.PENDING,
    "CLOSED": TradeStatus.CLOSED,
    "REVOKED": TradeStatus.CLOSED,
}
_REFUND_STATES = {
    "SUCCESS": RefundStatus.SUCCEEDED,
    "PROCESSING": RefundStatus.PROCESSING,
    "CLOSED": RefundStatus.FAILED,
    "ABNORMAL": RefundStatus.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeChatConfig:
    """One merchant account.

    Attributes:
        api_url: base URL, without a trailing slash.
        api_v3_key: 32 bytes.
        mch_private_key_pem: our key, the one of certificate `mch_serial`.
        platform_keys: the platform's certificates by upper-case serial, its public keys by ``PUB_KEY_ID_…``.
    """

    api_url: str
    mch_id: str
    app_id: str
    mch_serial: str
    api_v3_key: bytes = field(repr=False)
    mch_private_key_pem: bytes = field(repr=False)
    platform_keys: Mapping[str, bytes]


def request_message(*, method: str, target: str, timestamp: str, nonce: str, body: str) -> bytes:
    """What the signature of a request covers; `target` is path and query, from ``/v3`` on."""
    return f"{method}\n{target}\n{timestamp}\n{nonce}\n{body}\n".encode()


def answer_message(*, timestamp: str, nonce: str, body: bytes) -> bytes:
    """What the signature of an answer or notification covers."""
    return f"{timestamp}\n{nonce}\n".encode() + body + b"\n"


class WeChatPay:
    """One merchant account at WeChat Pay; implements `payments.providers.base.Provider`. Thread-safe.

    Args:
        config: the account.
        timeout_seconds: for one call in all its parts.
        clock: seconds since the epoch; for tests.
        limits: around every call that goes out.
    """

    channel = "wechat"

    def __init__(
        self,
        config: WeChatConfig,
        *,
        timeout_seconds: float = 5.0,
        clock: Callable[[], float] = time.time,
        limits: Limits = nullcontext,
    ) -> None:
        if len(config.api_v3_key) != 32:
            raise ValueError("the API v3 key must have 32 bytes")
        self.config = config
        self.merchant = config.mch_id
        self._clock = clock
        self._limits = limits
        self._key = rsa.load_private_key(config.mch_private_key_pem)
        self._platform = {serial: rsa.load_public_key(pem) for serial, pem in config.platform_keys.items()}
        self._http = client(timeout_seconds=timeout_seconds)

    def create(
        self,
        *,
        out_trade_no: str,
        amount_minor: int,
        currency: str,
        description: str,
        notify_url: str,
        return_url: str,
        expires_at: datetime,
    ) -> NextAction:
        answer = self._call(
            "POST",
            "/v3/pay/transactions/native",
            {
                "appid": self.config.app_id,
                "mchid": self.config.mch_id,
                "description": description,
                "out_trade_no": out_trade_no,
                "time_expire": expires_at.astimezone(CHINA).isoformat(timespec="seconds"),
                "notify_url": notify_url,
                "amount": {"total": amount_minor, "currency": currency},
            },
        )
        with reading("code_url"):
            return NextAction(type=NextActionType.QR_CODE, url=text_of(answer, "code_url"))

    def query(self, *, out_trade_no: str) -> Trade:
        path = (
            f"/v3/pay/transactions/out-trade-no/{quote(out_trade_no, safe='')}?mchid={quote(self.config.mch_id)}"
        )
        try:
            trade = self._call("GET", path)
        except ProviderRejected as refused:
            if refused.code in _NOT_FOUND:
                return Trade(status=TradeStatus.NOT_FOUND)
            raise
        status = _TRADE_STATES.get(str(trade.get("trade_state")), TradeStatus.PENDING)
        if status is TradeStatus.PAID:
            with reading("trade"):
                return Trade(status=status, facts=(paid_fact(trade),))
        if status is TradeStatus.CLOSED:
            return Trade(status=status, facts=(self._closed_fact(out_trade_no),))
        return Trade(status=status)

    def close(self, *, out_trade_no: str) -> Trade:
        path = f"/v3/pay/transactions/out-trade-no/{quote(out_trade_no, safe='')}/close"
        try:
            self._call("POST", path, {"mchid": self.config.mch_id})
        except ProviderRejected as refused:
            if refused.code == "ORDERPAID":
                return self.query(out_trade_no=out_trade_no)
            if refused.code not in _NOT_FOUND | {"ORDER_CLOSED", "ORDERCLOSED"}:
                raise
        return Trade(status=TradeStatus.CLOSED, facts=(self._closed_fact(out_trade_no),))

    def refund(
        self,
        *,
        out_trade_no: str,
        out_refund_no: str,
        amount_minor: int,
        paid_minor: int,
        currency: str,
        reason: str,
        notify_url: str,
    ) -> RefundResult:
        body: dict[str, Any] = {
            "out_trade_no": out_trade_no,
            "out_refund_no": out_refund_no,
            "notify_url": notify_url,
            "amount": {"refund": amount_minor, "total": paid_minor, "currency": currency},
        }
        if reason:
            body["reason"] = reason
        return self._refund_result(self._call("POST", "/v3/refund/domestic/refunds", body))

    def query_refund(self, *, out_trade_no: str, out_refund_no: str) -> RefundResult:
        try:
            answer = self._call("GET", f"/v3/refund/domestic/refunds/{quote(out_refund_no, safe='')}")
        except ProviderRejected as refused:
            if refused.code in _NOT_FOUND:
                return RefundResult(status=RefundStatus.NOT_FOUND)
            raise
        return self._refund_result(answer)

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        self._verify(headers, body, now=now.timestamp())
        try:
            envelope = json.loads(body)
            resource = envelope["resource"]
            if resource["algorithm"] != "AEAD_AES_256_GCM":
                raise ValueError(f"unknown algorithm {resource['algorithm']!r}")
            plain = rsa.decrypt(
                resource["ciphertext"],
                key=self.config.api_v3_key,
                nonce=resource["nonce"].encode(),
                associated_data=resource.get("associated_data", "").encode(),
            )
            content = json.loads(plain)
            event_type = envelope["event_type"]
            return Notice(
                notification_id=text_of(envelope, "id"),
                event_type=event_type,
                facts=facts_of(event_type, content),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotificationMalformed(f"not a readable notification: {type(error).__name__}") from error

    def _refund_result(self, answer: Mapping[str, Any]) -> RefundResult:
        status = _REFUND_STATES.get(str(answer.get("status")), RefundStatus.PROCESSING)
        if status is not RefundStatus.SUCCEEDED:
            return RefundResult(status=status)
        with reading("refund"):
            return RefundResult(status=status, facts=(refunded_fact(answer, merchant=self.config.mch_id),))

    def _closed_fact(self, out_trade_no: str) -> Fact:
        return closed_fact(channel=self.channel, merchant=self.merchant, out_trade_no=out_trade_no)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One signed request; the decoded, verified answer ({} for 204)."""
        text = "" if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        request = self._http.build_request(
            method, self.config.api_url + path, content=text.encode(), headers=self._headers(method, path, text)
        )
        response = send(self._http, request, limits=self._limits)
        self._verify_answer(response)
        try:
            answer = json.loads(response.content) if response.content else {}
        except ValueError as error:
            raise OutcomeUnknown("the answer is not JSON") from error
        if not isinstance(answer, dict):
            raise OutcomeUnknown("the answer is not a JSON object")
        if response.status_code >= 300:
            raise ProviderRejected(str(answer.get("code", response.status_code)), str(answer.get("message", "")))
        return answer

    def _headers(self, method: str, path: str, body: str) -> dict[str, str]:
        timestamp, nonce = str(int(self._clock())), secrets.token_hex(16)
        message = request_message(method=method, target=path, timestamp=timestamp, nonce=nonce, body=body)
        authorization = (
            f'{AUTHORIZATION_SCHEME} mchid="{self.config.mch_id}",nonce_str="{nonce}",'
            f'signature="{rsa.sign(message, self._key)}",timestamp="{timestamp}",'
            f'serial_no="{self.config.mch_serial}"'
        )
        headers = {
            "Authorization": authorization,
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "payonce",
        }
        # naming a public key asks the platform to sign its answer with it instead of a certificate
        for serial in self._platform:
            if serial.startswith(PUBLIC_KEY_PREFIX):
                headers["Wechatpay-Serial"] = serial
        return headers

    def _verify_answer(self, response: httpx.Response) -> None:
        try:
            self._verify(response.headers, response.content, now=self._clock())
        except SignatureInvalid as error:
            # a refusal that nobody signed may come from anything on the way; it proves nothing
            raise OutcomeUnknown(
                f"answer {response.status_code} is not signed by the platform: {error}"
            ) from error

    def _verify(self, headers: Mapping[str, str], body: bytes, *, now: float) -> None:
        """Raises SignatureInvalid unless the platform signed `body` within the last five minutes."""
        given = {name.lower(): value for name, value in headers.items()}
        timestamp, nonce = given.get("wechatpay-timestamp", ""), given.get("wechatpay-nonce", "")
        signature, serial = given.get("wechatpay-signature", ""), given.get("wechatpay-serial", "")
        if not (timestamp and nonce and signature and serial):
            raise SignatureInvalid("a Wechatpay header is missing")
        if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 15:
            raise SignatureInvalid("the time stamp is not a number")
        if abs(now - int(timestamp)) >= MAX_SKEW_SECONDS:
            raise SignatureInvalid("the time stamp is stale or of the future")
        if signature.startswith(PROBE_PREFIX):
            raise SignatureInvalid("a probe of the platform")
        key = self._platform.get(serial) or self._platform.get(serial.upper())
        if key is None:
            raise SignatureInvalid("signed with a key that we do not hold")
        if not rsa.verifies(answer_message(timestamp=timestamp, nonce=nonce, body=body), signature, key):
            raise SignatureInvalid("the signature does not verify")
