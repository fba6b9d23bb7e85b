"""Alipay with RSA2: page and QR-code payments, queries, closing, refunds, bills and notifications.

Source: Alipay open platform, "alipay.trade.page.pay", "alipay.trade.precreate", "alipay.trade.query",
"alipay.trade.close", "alipay.trade.refund", "alipay.trade.fastpay.refund.query",
"alipay.data.dataservice.bill.downloadurl.query", "asynchronous notification" and "signing" (read 2026-11).
Currency is CNY.

A refund has no number of Alipay's own: ours (`out_request_no`) identifies it.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date, datetime, tzinfo
from typing import Any
from urllib.parse import urlencode

from payments import money
from payments.errors import NotificationMalformed, OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers import alipay_bill, rsa
from payments.providers.alipay_certificates import CertificatePems, CertificateTrust
from payments.providers.alipay_facts import (
    CHANNEL,
    ended_unpaid,
    notified_facts,
    refund_of,
    refunded_fact,
    trade_of,
)
from payments.providers.alipay_signing import (
    KeyTrust,
    Trust,
    genuine_answer,
    genuine_form,
    signed_text,
)
from payments.providers.base import (
    NOBODY,
    BillLine,
    NextAction,
    NextActionType,
    Notice,
    Payer,
    PayMethod,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
)
from payments.providers.documents import CHINA, TIME_FORMAT, UNREADABLE, text_of
from payments.providers.transport import Limits, client, download, reading, send

SUCCESS = "10000"
NOT_EXIST = "ACQ.TRADE_NOT_EXIST"
# too many calls, not allowed to call: the gateway's own words, and none about a trade or refund.
# Source: Alipay open platform, "common error codes" (read 2026-11)
_TURNED_AWAY = frozenset({"20001", "40005", "40006"})
_NOT_OUR_SIGNATURE = "isv.invalid-signature"
_UNFUNDED = "ACQ.SELLER_BALANCE_NOT_ENOUGH"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlipayConfig:
    """One application of one seller.

    Attributes:
        alipay_public_key_pem: Alipay's public keys, one or (while one takes over from another) several; not used
            with `certificates`.
        certificates: for certificate mode.
    """

    gateway_url: str
    app_id: str
    seller_id: str
    app_private_key_pem: bytes = field(repr=False)
    alipay_public_key_pem: bytes = b""
    certificates: CertificatePems | None = None


class Alipay:
    """One application at Alipay; implements `payments.providers.base.Provider`. Thread-safe.

    Args:
        config: the application.
        timeout_seconds: for one call in all its parts; a bill's file has `DOWNLOAD_SECONDS_MAX`.
        clock: seconds since the epoch; for tests.
        limits: around every call that goes out.

    Raises:
        ValueError: a key is none.
        CertificateError: a certificate is none of those that we can go by.
    """

    channel = CHANNEL
    methods: tuple[PayMethod, ...] = (PayMethod.PAGE, PayMethod.PRECREATE)
    currencies = frozenset({"CNY"})
    zone: tzinfo = CHINA
    charges_again = False

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
        self._trust: Trust = (
            KeyTrust(config.alipay_public_key_pem)
            if config.certificates is None
            else CertificateTrust(config.certificates, app_key=self._key.public_key(), now=clock())
        )
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
        method: PayMethod | None = None,
        payer: Payer = NOBODY,
    ) -> NextAction:
        """A signed address for the shopper's browser, for which no call goes out, or a QR code.

        Either way Alipay has no trade until the shopper arrives, so a query of it says `NOT_FOUND` until then.
        """
        chosen = self.methods[0] if method is None else method
        if chosen not in self.methods:
            raise ValueError(f"Alipay has no method {chosen!r}; it has {', '.join(self.methods)}")
        content = {
            "out_trade_no": out_trade_no,
            "total_amount": money.to_decimal(amount_minor, currency),
            "subject": description,
            "time_expire": expires_at.astimezone(CHINA).strftime(TIME_FORMAT),
        }
        if chosen is PayMethod.PRECREATE:
            return self._precreate(content, notify_url)
        content["product_code"] = "FAST_INSTANT_TRADE_PAY"
        more = {"notify_url": notify_url, "return_url": return_url}
        parameters = self._signed("alipay.trade.page.pay", content, more)
        return NextAction(type=NextActionType.REDIRECT, url=f"{self.config.gateway_url}?{urlencode(parameters)}")

    def _precreate(self, content: Mapping[str, str], notify_url: str) -> NextAction:
        answer = self._call("alipay.trade.precreate", content, {"notify_url": notify_url})
        with reading("QR code"):
            if text_of(answer, "out_trade_no") != content["out_trade_no"]:
                raise ValueError("it is another trade's")
            return NextAction(type=NextActionType.QR_CODE, url=text_of(answer, "qr_code"))

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        try:
            answer = self._call("alipay.trade.query", {"out_trade_no": out_trade_no})
        except ProviderRejected as refused:
            if refused.code == NOT_EXIST:
                return Trade(status=TradeStatus.NOT_FOUND)  # the shopper has not arrived yet
            raise
        with reading("trade"):
            return trade_of(answer, out_trade_no=out_trade_no, seller_id=self.merchant)

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        unheard_of = False
        try:
            self._call("alipay.trade.close", {"out_trade_no": out_trade_no})
        except ProviderRejected as refused:
            unheard_of = refused.code == NOT_EXIST  # the shopper has not arrived yet, and has the link or code
            if not unheard_of:
                trade = self.query(out_trade_no=out_trade_no)  # paid, or closed before
                if trade.status in {TradeStatus.PAID, TradeStatus.CLOSED}:
                    return trade
                raise
        fact = ended_unpaid(out_trade_no=out_trade_no, seller_id=self.merchant)
        return Trade(status=TradeStatus.CLOSED, facts=(fact,), may_yet_begin=unheard_of)

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
        content = {
            "out_trade_no": out_trade_no,
            "out_request_no": out_refund_no,
            "refund_amount": money.to_decimal(amount_minor, currency),
            "refund_reason": reason,
        }
        try:
            answer = self._call("alipay.trade.refund", content)
        except ProviderRejected as refused:
            if refused.code == _UNFUNDED:
                return RefundResult(status=RefundStatus.UNFUNDED, message=str(refused))
            raise
        if answer.get("fund_change") != "Y":
            # N also stands for "done before under this number": only the query tells
            return self.query_refund(out_trade_no=out_trade_no, out_refund_no=out_refund_no)
        with reading("refund"):
            fact = refunded_fact(
                answer,
                seller_id=self.merchant,
                out_trade_no=out_trade_no,
                out_refund_no=out_refund_no,
                amount_minor=amount_minor,
                paid_minor=paid_minor,
            )
        return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        number = {"out_trade_no": out_trade_no, "out_request_no": out_refund_no}
        content = {**number, "query_options": ["gmt_refund_pay"]}
        try:
            answer = self._call("alipay.trade.fastpay.refund.query", content)
        except ProviderRejected as refused:
            if refused.code == NOT_EXIST:
                return RefundResult(status=RefundStatus.NOT_FOUND)
            raise
        with reading("refund"):
            return refund_of(answer, out_trade_no, out_refund_no, seller_id=self.merchant)

    def bill(self, *, day: date) -> tuple[BillLine, ...]:
        """See `Provider`. Empty is only believed when the bill would be there by now."""
        content = {"bill_type": "trade", "bill_date": f"{day:%Y-%m-%d}"}
        try:
            answer = self._call("alipay.data.dataservice.bill.downloadurl.query", content)
        except ProviderRejected as refused:
            if not alipay_bill.says_missing(refused.code):
                raise
            if self._clock() < alipay_bill.due_at(day):
                raise ProviderUnavailable(f"the bill of {day} is not made yet") from refused
            return ()
        with reading("bill's address"):
            url = alipay_bill.checked_address(
                text_of(answer, "bill_download_url"), gateway_url=self.config.gateway_url
            )
        packed = download(self._http, url, bytes_max=alipay_bill.MAX_PACKED_BYTES, limits=self._limits)
        with reading("bill"):
            return alipay_bill.read_bill(packed, day=day, seller_id=self.merchant)

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        """See `Provider`. Alipay's notifications carry no time; only its certificates are judged by `now`."""
        given = genuine_form(body, self._trust, app_id=self.config.app_id, now=now.timestamp())
        try:
            return Notice(
                notification_id=text_of(given, "notify_id"),
                event_type=text_of(given, "trade_status"),
                facts=notified_facts(given, seller_id=self.merchant),
            )
        except UNREADABLE as error:
            raise NotificationMalformed(f"not a readable notification: {type(error).__name__}") from None

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
            **self._trust.parameters,
            **more,
        }
        parameters["sign"] = rsa.sign(signed_text(parameters), self._key)
        return parameters

    def _call(
        self, method: str, content: Mapping[str, Any], more: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """One signed request; the decoded, verified answer.

        Args:
            more: parameters beside the content.

        Raises:
            ProviderRejected: by its `sub_code`.
            OutcomeUnknown: it says "system error".
            ProviderUnavailable: the gateway turned it away, before the service that was called.
        """
        parameters = self._signed(method, content, more or {})
        request = self._http.build_request("POST", self.config.gateway_url, data=parameters)
        came = send(self._http, request, limits=self._limits)
        answer = genuine_answer(came.content, method, self._trust, now=self._clock())
        if answer.get("code") == SUCCESS:
            return answer
        code = str(answer.get("sub_code") or answer.get("code"))
        if answer.get("code") in _TURNED_AWAY or code == _NOT_OUR_SIGNATURE:
            raise ProviderUnavailable(f"the gateway turned the call away: {answer.get('code')} {code}")
        if code.endswith("SYSTEM_ERROR") or answer.get("code") == "20000":
            raise OutcomeUnknown(f"the platform answered {code}")
        raise ProviderRejected(code, str(answer.get("sub_msg") or answer.get("msg")))
