"""WeChat Pay API v3: native (QR code), H5 and JSAPI payments, refunds, notifications, bills and certificates.

Source: WeChat Pay API v3 documentation, "Native payment", "H5 payment", "JSAPI payment", "notification", "apply
for trade bill", "download bill", "platform certificates" (read 2026-11). Amounts are integers in fen.
"""

import hashlib
import ipaddress
import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import quote

from payments.errors import (
    NotificationMalformed,
    OutcomeUnknown,
    ProviderRejected,
    ProviderUnavailable,
    SignatureInvalid,
)
from payments.providers.answers import follow_up, must_match
from payments.providers.base import (
    NEEDED,
    NOBODY,
    BillLine,
    Fact,
    NextAction,
    NextActionType,
    Notice,
    Payer,
    PayMethod,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
    closed_fact,
)
from payments.providers.documents import CHINA, UNREADABLE, text_of
from payments.providers.transport import reading
from payments.providers.wechat.bill import due_at, parse
from payments.providers.wechat.calls import SignedCalls, WeChatConfig
from payments.providers.wechat.facts import PAID_STATES, about, facts_of, paid_fact, refund_news, refunded_fact
from payments.providers.wechat.keys import PUBLIC_KEY_PREFIX, serial_of
from payments.providers.wechat.signing import answer_message, request_message

__all__ = ["PUBLIC_KEY_PREFIX", "WeChatConfig", "WeChatPay", "answer_message", "request_message"]

BILL_BYTES_MAX = 50_000_000

_NOT_FOUND = frozenset({"ORDER_NOT_EXIST", "ORDERNOTEXIST", "RESOURCE_NOT_EXISTS"})
_OVER = _NOT_FOUND | {"ORDER_CLOSED", "ORDERCLOSED"}
_TRADE_STATES = {
    **dict.fromkeys(PAID_STATES, TradeStatus.PAID),
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
    "ABNORMAL": RefundStatus.STUCK,
}
_UNFUNDED = "NOT_ENOUGH"

# of what an order call gives out; called again under the same number, it gives out a fresh one
_LIVES = {
    PayMethod.NATIVE: timedelta(hours=2),
    PayMethod.H5: timedelta(minutes=5),
    PayMethod.JSAPI: timedelta(hours=2),
}


class WeChatPay(SignedCalls):
    """One merchant account at WeChat Pay; implements `payments.providers.base.Provider`. Thread-safe.

    The `reference` of calls is ignored: the platform is asked by our own number.
    """

    channel = "wechat"
    methods: tuple[PayMethod, ...] = (PayMethod.NATIVE, PayMethod.H5, PayMethod.JSAPI)
    currencies = frozenset({"CNY"})
    zone: tzinfo = CHINA
    charges_again = False

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
        method: PayMethod | None = None,
        payer: Payer = NOBODY,
    ) -> NextAction:
        chosen = self.methods[0] if method is None else method
        body: dict[str, Any] = {
            "appid": self.config.app_id,
            "mchid": self.config.mch_id,
            "description": description,
            "out_trade_no": out_trade_no,
            "time_expire": expires_at.astimezone(CHINA).isoformat(timespec="seconds"),
            "notify_url": notify_url,
            "amount": {"total": amount_minor, "currency": currency},
            **self._payer_part(chosen, payer),
        }
        answer = self._call("POST", f"/v3/pay/transactions/{chosen.value}", body)
        return self._next_action(chosen, answer, return_url=return_url)

    def _payer_part(self, method: PayMethod, payer: Payer) -> dict[str, Any]:
        """What the method wants to be told of the shopper; ValueError if it is not known."""
        if method not in self.methods:
            raise ValueError(f"{method!r} is not one of {', '.join(self.methods)}")
        needed = NEEDED.get(method)
        if needed and not getattr(payer, needed):
            raise ValueError(f"{method.value} needs the payer's {needed}")
        if method is PayMethod.JSAPI:
            return {"payer": {"openid": payer.openid}}
        if method is PayMethod.H5:
            address = str(ipaddress.ip_address(payer.client_ip))
            return {"scene_info": {"payer_client_ip": address, "h5_info": {"type": "Wap"}}}
        return {}

    def _next_action(self, method: PayMethod, answer: Mapping[str, Any], *, return_url: str) -> NextAction:
        if method is PayMethod.JSAPI:
            with reading("prepay_id"):
                prepay_id = text_of(answer, "prepay_id")
            params = self._signer.wallet_params(app_id=self.config.app_id, prepay_id=prepay_id, now=self._clock())
            return NextAction(type=NextActionType.JSAPI, url="", params=params, lives=_LIVES[method])
        if method is PayMethod.H5:
            with reading("h5_url"):
                url = text_of(answer, "h5_url")
            if return_url:
                url += f"{'&' if '?' in url else '?'}redirect_url={quote(return_url, safe='')}"
            return NextAction(type=NextActionType.REDIRECT, url=url, lives=_LIVES[method])
        with reading("code_url"):
            url = text_of(answer, "code_url")
        return NextAction(type=NextActionType.QR_CODE, url=url, lives=_LIVES[method])

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        path = (
            f"/v3/pay/transactions/out-trade-no/{quote(out_trade_no, safe='')}?mchid={quote(self.config.mch_id)}"
        )
        try:
            trade = self._call("GET", path)
        except ProviderRejected as refused:
            if refused.code in _NOT_FOUND:
                return Trade(status=TradeStatus.NOT_FOUND)
            raise
        must_match(self.channel, asked={"out_trade_no": out_trade_no}, told=about(trade))
        status = _TRADE_STATES.get(str(trade.get("trade_state")), TradeStatus.PENDING)
        if status is TradeStatus.PAID:
            with reading("trade"):
                return Trade(status=status, facts=(paid_fact(trade),))
        if status is TradeStatus.CLOSED:
            return Trade(status=status, facts=(self._closed_fact(out_trade_no),))
        return Trade(status=status)

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        path = f"/v3/pay/transactions/out-trade-no/{quote(out_trade_no, safe='')}/close"
        try:
            self._call("POST", path, {"mchid": self.config.mch_id})
        except ProviderRejected as refused:
            if refused.code not in _OVER:
                # paid, or closed before: the platform has more codes for that than it lists
                with follow_up():
                    trade = self.query(out_trade_no=out_trade_no)
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
        reference: str = "",
    ) -> RefundResult:
        body: dict[str, Any] = {
            "out_trade_no": out_trade_no,
            "out_refund_no": out_refund_no,
            "notify_url": notify_url,
            "amount": {"refund": amount_minor, "total": paid_minor, "currency": currency},
        }
        if reason:
            body["reason"] = reason
        asked = {
            "out_trade_no": out_trade_no,
            "out_refund_no": out_refund_no,
            "amount_minor": amount_minor,
            "paid_minor": paid_minor,
            "currency": currency,
        }
        try:
            return self._refund_result(self._call("POST", "/v3/refund/domestic/refunds", body), asked)
        except ProviderRejected as refused:
            if refused.code != _UNFUNDED:
                raise
            return RefundResult(status=RefundStatus.UNFUNDED, message=str(refused))

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        try:
            answer = self._call("GET", f"/v3/refund/domestic/refunds/{quote(out_refund_no, safe='')}")
        except ProviderRejected as refused:
            if refused.code in _NOT_FOUND:
                return RefundResult(status=RefundStatus.NOT_FOUND)
            raise
        return self._refund_result(answer, {"out_trade_no": out_trade_no, "out_refund_no": out_refund_no})

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        """See `Provider`; the day is China's. Empty is only believed when the bill would be there by now."""
        try:
            announced = self._call("GET", f"/v3/bill/tradebill?bill_date={day:%Y-%m-%d}&bill_type=ALL")
        except ProviderRejected as refused:
            missing = refused.code == "NO_STATEMENT_EXIST"
            if missing and self._clock() >= due_at(day):
                return ()
            if missing or refused.code == "STATEMENT_CREATING":
                raise ProviderUnavailable(f"the bill of {day} is still being made") from refused
            raise
        with reading("bill"):
            if announced["hash_type"] != "SHA1":
                raise ValueError(f"unknown hash {announced['hash_type']!r}")
            address, digest = text_of(announced, "download_url"), text_of(announced, "hash_value")
        content = self._download(address, bytes_max=BILL_BYTES_MAX)
        # nobody signs the file: it is genuine because the signed answer holds its hash, of a kind we cannot choose
        if hashlib.sha1(content).hexdigest() != digest.lower():  # noqa: S324
            raise OutcomeUnknown("what was downloaded is not the bill that was announced")
        with reading("bill"):
            return parse(content)

    def download_certificates(self) -> dict[str, bytes]:
        """The platform's certificates as of now, in PEM by serial; `wechat_keys.keep_certificates` keeps them.

        Believed because the answer is signed with a key that we hold already and only we can decrypt it. Not for
        the path of a request: a timer fetches what will be needed.
        """
        answer = self._call("GET", "/v3/certificates")
        with reading("certificates"):
            found = {}
            for each in answer["data"]:
                pem = self._decrypt(each["encrypt_certificate"])
                serial = serial_of(pem)
                if serial != text_of(each, "serial_no").upper().lstrip("0"):
                    raise ValueError(f"{each['serial_no']} is announced, but the certificate is {serial}")
                found[serial] = pem
            return found

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        self._verify(headers, body, now=now.timestamp())
        try:
            envelope = json.loads(body)
            content = json.loads(self._decrypt(envelope["resource"]))
            event_type = envelope["event_type"]
            # a payment always names it, a refund never does
            if content.get("appid", self.config.app_id) != self.config.app_id:
                raise SignatureInvalid("for another application")
            return Notice(
                notification_id=text_of(envelope, "id"),
                event_type=event_type,
                facts=facts_of(event_type, content),
                refund=refund_news(event_type, content),
            )
        except UNREADABLE as error:
            raise NotificationMalformed(f"not a readable notification: {type(error).__name__}") from None

    def _refund_result(self, answer: Mapping[str, Any], asked: Mapping[str, object]) -> RefundResult:
        must_match(self.channel, asked=asked, told=about(answer))
        status = _REFUND_STATES.get(str(answer.get("status")), RefundStatus.PROCESSING)
        if status is not RefundStatus.SUCCEEDED:
            return RefundResult(status=status, message="ABNORMAL" if status is RefundStatus.STUCK else "")
        with reading("refund"):
            return RefundResult(status=status, facts=(refunded_fact(answer, merchant=self.config.mch_id),))

    def _closed_fact(self, out_trade_no: str) -> Fact:
        return closed_fact(channel=self.channel, merchant=self.merchant, out_trade_no=out_trade_no)
