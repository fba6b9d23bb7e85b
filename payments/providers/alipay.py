"""Alipay with RSA2: page payments, queries, closing, refunds and notifications.

Source: Alipay open platform, "alipay.trade.page.pay", "alipay.trade.query", "alipay.trade.close",
"alipay.trade.refund", "alipay.trade.fastpay.refund.query", "asynchronous notification" and "signing"
(read 2026-11). Amounts travel as yuan with two places; here they are integers in fen. Currency is CNY.

A refund has no number of Alipay's own: ours (`out_request_no`) identifies it.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qsl, urlencode

from payments import money
from payments.errors import NotificationMalformed, OutcomeUnknown, ProviderRejected, SignatureInvalid
from payments.providers import rsa
from payments.providers.base import (
    Fact,
    FactKind,
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

CURRENCY = "CNY"
CHINA = timezone(timedelta(hours=8))
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
SUCCESS = "10000"
NOT_EXIST = "ACQ.TRADE_NOT_EXIST"
PAID_STATES = frozenset({"TRADE_SUCCESS", "TRADE_FINISHED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlipayConfig:
    """One application of one seller."""

    gateway_url: str
    app_id: str
    seller_id: str
    app_private_key_pem: bytes = field(repr=False)
    alipay_public_key_pem: bytes


def signed_text(parameters: Mapping[str, str], *, without: frozenset[str] = frozenset({"sign"})) -> bytes:
    """What an RSA2 signature covers: ``name=value`` sorted by name, joined by ``&``; empty values left out.

    Args:
        parameters: decoded once.
        without: names not covered: ``sign`` for requests, ``sign`` and ``sign_type`` for notifications.
    """
    pairs = sorted((name, value) for name, value in parameters.items() if name not in without and value)
    return "&".join(f"{name}={value}" for name, value in pairs).encode()


def signed_member(answer: str, name: str) -> str:
    """The value of the top-level member `name` exactly as it stands in the bytes of `answer`.

    The platform signs those very characters, so decoding and encoding again would not do. Braces, quotes and
    escapes inside strings are minded.

    Raises:
        ValueError: no such member, or it never ends.
    """
    start = answer.index(f'"{name}"')
    start = answer.index(":", start + len(name) + 2) + 1
    while answer[start : start + 1].isspace():
        start += 1
    _, length = json.JSONDecoder().raw_decode(answer[start:])
    return answer[start : start + length]


class Alipay:
    """One application at Alipay; implements `payments.providers.base.Provider`. Thread-safe.

    Args:
        config: the application.
        timeout_seconds: for one call in all its parts.
        clock: seconds since the epoch; for tests.
        limits: around every call that goes out.
    """

    channel = "alipay"

    def __init__(
        self,
        config: AlipayConfig,
        *,
        timeout_seconds: float = 5.0,
        clock: Callable[[], float] = time.time,
        limits: Limits = nullcontext,
    ) -> None:
        self.config = config
        self.merchant = config.seller_id
        self._clock = clock
        self._limits = limits
        self._key = rsa.load_private_key(config.app_private_key_pem)
        self._platform = rsa.load_public_key(config.alipay_public_key_pem)
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
        """A signed address for the shopper's browser. No call goes out: Alipay hears of it from the shopper."""
        content = {
            "out_trade_no": out_trade_no,
            "total_amount": money.to_decimal(amount_minor, currency),
            "subject": description,
            "product_code": "FAST_INSTANT_TRADE_PAY",
            "time_expire": expires_at.astimezone(CHINA).strftime(TIME_FORMAT),
        }
        parameters = self._signed(
            "alipay.trade.page.pay", content, {"notify_url": notify_url, "return_url": return_url}
        )
        return NextAction(type=NextActionType.REDIRECT, url=f"{self.config.gateway_url}?{urlencode(parameters)}")

    def query(self, *, out_trade_no: str) -> Trade:
        try:
            answer = self._call("alipay.trade.query", {"out_trade_no": out_trade_no})
        except ProviderRejected as refused:
            if refused.code == NOT_EXIST:
                return Trade(status=TradeStatus.NOT_FOUND)  # the shopper has not opened the page yet
            raise
        with reading("trade"):
            return self._trade(answer, out_trade_no)

    def close(self, *, out_trade_no: str) -> Trade:
        try:
            self._call("alipay.trade.close", {"out_trade_no": out_trade_no})
        except ProviderRejected as refused:
            if refused.code != NOT_EXIST:
                trade = self.query(out_trade_no=out_trade_no)  # paid, or closed before
                if trade.status in {TradeStatus.PAID, TradeStatus.CLOSED}:
                    return trade
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
        content = {
            "out_trade_no": out_trade_no,
            "out_request_no": out_refund_no,
            "refund_amount": money.to_decimal(amount_minor, currency),
            "refund_reason": reason,
        }
        answer = self._call("alipay.trade.refund", content)
        if answer.get("fund_change") != "Y":
            # N also stands for "done before under this number": only the query tells
            return self.query_refund(out_trade_no=out_trade_no, out_refund_no=out_refund_no)
        fact = self._refunded_fact(
            out_trade_no,
            out_refund_no,
            amount_minor,
            trade_no=str(answer.get("trade_no", "")),
            paid_minor=paid_minor,
        )
        return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))

    def query_refund(self, *, out_trade_no: str, out_refund_no: str) -> RefundResult:
        content = {"out_trade_no": out_trade_no, "out_request_no": out_refund_no}
        try:
            answer = self._call("alipay.trade.fastpay.refund.query", content)
        except ProviderRejected as refused:
            if refused.code == NOT_EXIST:
                return RefundResult(status=RefundStatus.NOT_FOUND)
            raise
        if answer.get("refund_status") != "REFUND_SUCCESS":
            return RefundResult(status=RefundStatus.NOT_FOUND)
        with reading("refund"):
            fact = self._refunded_fact(
                out_trade_no,
                out_refund_no,
                money.from_decimal(answer["refund_amount"], CURRENCY),
                trade_no=str(answer.get("trade_no", "")),
                paid_minor=money.from_decimal(answer["total_amount"], CURRENCY),
            )
        return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        """See `Provider`. Alipay's notifications carry no time that could be judged; their id and facts dedupe."""
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=200)
        except ValueError as error:
            raise NotificationMalformed("not a form") from error
        given = dict(pairs)
        if len(given) != len(pairs):
            raise SignatureInvalid("a parameter is given twice")
        if given.get("sign_type") != "RSA2":
            raise SignatureInvalid("sign_type is not RSA2")
        covered = signed_text(given, without=frozenset({"sign", "sign_type"}))
        if not rsa.verifies(covered, given.get("sign", ""), self._platform):
            raise SignatureInvalid("the signature does not verify")
        if given.get("app_id") != self.config.app_id:
            raise SignatureInvalid("for another application")
        try:
            return Notice(
                notification_id=_must(given, "notify_id"),
                event_type=_must(given, "trade_status"),
                facts=self._notified_facts(given),
            )
        except (KeyError, ValueError) as error:
            raise NotificationMalformed(f"not a readable notification: {error!r}") from error

    def _notified_facts(self, given: Mapping[str, str]) -> tuple[Fact, ...]:
        """A partial refund notifies TRADE_SUCCESS again and a full one TRADE_CLOSED; both imply the payment.

        `refund_fee` is the sum of all refunds so far, so only the first one's own amount can be read from it;
        for any other the refund's own query tells (our timer asks for every refund that is open).
        """
        refunded = "refund_fee" in given or "gmt_refund" in given
        paid = given["trade_status"] in PAID_STATES or (given["trade_status"] == "TRADE_CLOSED" and refunded)
        if paid:
            return (self._paid_fact(given),)
        if given["trade_status"] == "TRADE_CLOSED":
            return (self._closed_fact(_must(given, "out_trade_no")),)
        return ()

    def _trade(self, answer: Mapping[str, Any], out_trade_no: str) -> Trade:
        state = answer["trade_status"]
        if state in PAID_STATES or (state == "TRADE_CLOSED" and answer.get("send_pay_date")):
            return Trade(status=TradeStatus.PAID, facts=(self._paid_fact(answer),))
        if state == "TRADE_CLOSED":
            return Trade(status=TradeStatus.CLOSED, facts=(self._closed_fact(out_trade_no),))
        return Trade(status=TradeStatus.PENDING)

    def _paid_fact(self, trade: Mapping[str, Any]) -> Fact:
        when = trade.get("gmt_payment") or trade.get("send_pay_date")
        return Fact(
            kind=FactKind.PAID,
            channel=self.channel,
            # a query's answer names no seller: it can only be about our own trades
            merchant=str(trade.get("seller_id") or self.config.seller_id),
            out_trade_no=_must(trade, "out_trade_no"),
            provider_txn_id=_must(trade, "trade_no"),
            amount_minor=money.from_decimal(_must(trade, "total_amount"), CURRENCY),
            currency=CURRENCY,
            occurred_at=datetime.strptime(when, TIME_FORMAT).replace(tzinfo=CHINA) if when else None,
        )

    def _refunded_fact(
        self, out_trade_no: str, out_refund_no: str, amount_minor: int, *, trade_no: str, paid_minor: int
    ) -> Fact:
        return Fact(
            kind=FactKind.REFUNDED,
            channel=self.channel,
            merchant=self.config.seller_id,
            out_trade_no=out_trade_no,
            provider_txn_id=out_refund_no,
            amount_minor=amount_minor,
            currency=CURRENCY,
            out_refund_no=out_refund_no,
            paid_txn_id=trade_no,
            paid_minor=paid_minor,
        )

    def _closed_fact(self, out_trade_no: str) -> Fact:
        return closed_fact(channel=self.channel, merchant=self.merchant, out_trade_no=out_trade_no)

    def _signed(self, method: str, content: Mapping[str, Any], more: Mapping[str, str]) -> dict[str, str]:
        parameters = {
            "app_id": self.config.app_id,
            "method": method,
            "format": "JSON",
            "charset": "utf-8",
            "sign_type": "RSA2",
            "timestamp": datetime.fromtimestamp(self._clock(), CHINA).strftime(TIME_FORMAT),
            "version": "1.0",
            "biz_content": json.dumps(content, ensure_ascii=False, separators=(",", ":")),
            **more,
        }
        parameters["sign"] = rsa.sign(signed_text(parameters), self._key)
        return parameters

    def _call(self, method: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """One signed request; the decoded, verified answer.

        Raises:
            ProviderRejected: by its `sub_code`. Codes that say "system error" raise OutcomeUnknown instead.
        """
        request = self._http.build_request("POST", self.config.gateway_url, data=self._signed(method, content, {}))
        response = send(self._http, request, limits=self._limits)
        name = method.replace(".", "_") + "_response"
        try:
            text = response.content.decode()
            name = name if f'"{name}"' in text else "error_response"
            raw, sign = signed_member(text, name), json.loads(text).get("sign", "")
            answer = json.loads(raw)
            if not isinstance(answer, dict) or not isinstance(sign, str):
                raise ValueError("neither an object nor its signature")
        except (ValueError, AttributeError) as error:
            raise OutcomeUnknown("the answer is not of the documented shape") from error
        if not rsa.verifies(raw.encode(), sign, self._platform):
            raise OutcomeUnknown("the answer is not signed by the platform")
        if answer.get("code") == SUCCESS:
            return answer
        code = str(answer.get("sub_code") or answer.get("code"))
        if code.endswith("SYSTEM_ERROR") or answer.get("code") == "20000":
            raise OutcomeUnknown(f"the platform answered {code}")
        raise ProviderRejected(code, str(answer.get("sub_msg") or answer.get("msg")))


def _must(document: Mapping[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is not a text")
    return value
