"""WeChat Pay API v3: payments by QR code, H5 and JSAPI, refunds, bills, certificates.

Source: WeChat Pay API v3 documentation, "Native payment", "H5 payment", "JSAPI payment", "notification", "apply
for trade bill", "download bill", "platform certificates" (read 2026-11). Amounts are integers in fen.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.account import Opening, Refunding, unless_refused
from payments.providers.actions import NextAction, NextActionType, Payer, PayMethod
from payments.providers.authenticity import readable
from payments.providers.base import BillLine, Notice, Provider, RefundResult, RefundStatus, Trade, TradeStatus
from payments.providers.documents import CHINA, next_day, text_of
from payments.providers.settings_fields import ConfigError, Settings
from payments.providers.transport import reading
from payments.providers.wechat.bill import DUE, parse
from payments.providers.wechat.calls import WeChatCalls
from payments.providers.wechat.facts import PAID_STATES, about, facts_of, paid_fact, refund_news, refunded_fact
from payments.providers.wechat.keys import keep_certificates, serial_of
from payments.providers.wechat.signing import verify

BILL_BYTES_MAX = 50_000_000

_OVER = frozenset({"ORDER_CLOSED", "ORDERCLOSED"})
# any other is open, such as NOTPAY, USERPAYING, PAYERROR
_TRADE_STATES = {
    **dict.fromkeys(PAID_STATES, TradeStatus.PAID),
    **dict.fromkeys(("CLOSED", "REVOKED"), TradeStatus.CLOSED),
}
_REFUND_STATES = {
    "SUCCESS": RefundStatus.SUCCEEDED,
    "CLOSED": RefundStatus.FAILED,
    "ABNORMAL": RefundStatus.STUCK,
}  # any other is under way

_REFUNDS = "/v3/refund/domestic/refunds"

# the shopper's next step, the member of the answer it is made from, and how long that is good; a second call under
# the same number gives a fresh one
_NEXT = {
    PayMethod.NATIVE: (NextActionType.QR_CODE, "code_url", timedelta(hours=2)),
    PayMethod.H5: (NextActionType.REDIRECT, "h5_url", timedelta(minutes=5)),
    PayMethod.JSAPI: (NextActionType.JSAPI, "prepay_id", timedelta(hours=2)),
}


class WeChatPay(WeChatCalls):
    """Merchant account at WeChat Pay; implements `base.Provider`. Thread-safe.

    Ignores the `reference` of calls: the platform knows our own number.
    """

    channel = "wechat"
    methods: tuple[PayMethod, ...] = (PayMethod.NATIVE, PayMethod.H5, PayMethod.JSAPI)
    currencies = frozenset({"CNY"})
    zone: tzinfo = CHINA
    unknown = frozenset({"ORDER_NOT_EXIST", "ORDERNOTEXIST", "RESOURCE_NOT_EXISTS"})
    unfunded = "NOT_ENOUGH"

    def open(self, wanted: Opening) -> NextAction:
        chosen = PayMethod(wanted.method)
        body: dict[str, Any] = {
            "appid": self._app_id,
            "mchid": self.merchant,
            "description": wanted.description,
            "out_trade_no": wanted.out_trade_no,
            "time_expire": wanted.expires_at.astimezone(CHINA).isoformat(timespec="seconds"),
            "notify_url": wanted.notify_url,
            "amount": {"total": wanted.amount_minor, "currency": wanted.currency},
            **_payer_part(chosen, wanted.payer),
        }
        answer = self._call("POST", f"/v3/pay/transactions/{chosen.value}", body)
        kind, name, lives = _NEXT[chosen]
        given = text_of(answer, name)
        if chosen is PayMethod.JSAPI:
            params = self._signer.wallet_params(app_id=self._app_id, prepay_id=given, now=self._clock())
            return NextAction(type=kind, url="", params=params, lives=lives)
        if chosen is PayMethod.H5 and wanted.return_url:
            given += f"{'&' if '?' in given else '?'}redirect_url={quote(wanted.return_url, safe='')}"
        return NextAction(type=kind, url=given, lives=lives)

    def find(self, out_trade_no: str, reference: str) -> Trade:
        trade = self._call("GET", f"{_trade_path(out_trade_no)}?mchid={quote(self.merchant)}")
        self.must_match({"out_trade_no": out_trade_no}, about(trade))
        status = _TRADE_STATES.get(str(trade.get("trade_state")), TradeStatus.PENDING)
        if status is TradeStatus.PAID:
            return Trade(status=status, facts=(paid_fact(trade),))
        return self.closed(out_trade_no) if status is TradeStatus.CLOSED else Trade(status=status)

    def end(self, out_trade_no: str, reference: str) -> Trade:
        call = partial(self._call, "POST", f"{_trade_path(out_trade_no)}/close", {"mchid": self.merchant})
        unless_refused(call, codes=_OVER)  # the platform has more codes for "over" than it lists
        return self.closed(out_trade_no)

    def give_back(self, wanted: Refunding) -> RefundResult:
        numbers = {"out_trade_no": wanted.out_trade_no, "out_refund_no": wanted.out_refund_no}
        amount = {"refund": wanted.amount_minor, "total": wanted.paid_minor, "currency": wanted.currency}
        body: dict[str, Any] = {**numbers, "notify_url": wanted.notify_url, "amount": amount}
        if wanted.reason:
            body["reason"] = wanted.reason
        asked = {
            **numbers,
            "amount_minor": wanted.amount_minor,
            "paid_minor": wanted.paid_minor,
            "currency": wanted.currency,
        }
        return self._refund_result(self._call("POST", _REFUNDS, body), asked)

    def find_refund(self, out_trade_no: str, out_refund_no: str, reference: str) -> RefundResult:
        answer = self._call("GET", f"{_REFUNDS}/{quote(out_refund_no, safe='')}")
        return self._refund_result(answer, {"out_trade_no": out_trade_no, "out_refund_no": out_refund_no})

    def lines(self, day: date) -> tuple[BillLine, ...]:
        """Fetch and parse the bill of `day` in China. Empty is believed only once the bill is due."""
        try:
            announced = self._call("GET", f"/v3/bill/tradebill?bill_date={day:%Y-%m-%d}&bill_type=ALL")
        except ProviderRejected as refused:
            missing = refused.code == "NO_STATEMENT_EXIST"
            if missing and self._clock() >= next_day(day, DUE):
                return ()
            if missing or refused.code == "STATEMENT_CREATING":
                raise ProviderUnavailable(f"the bill of {day} is still being made") from refused
            raise
        if announced["hash_type"] != "SHA1":
            raise ValueError(f"unknown hash {announced['hash_type']!r}")
        digest = text_of(announced, "hash_value")
        content = self._download(text_of(announced, "download_url"), bytes_max=BILL_BYTES_MAX)
        # the file is unsigned: the signed answer vouches for it by its hash, of a kind we cannot choose
        if hashlib.sha1(content).hexdigest() != digest.lower():  # noqa: S324
            raise OutcomeUnknown("what was downloaded is not the bill that was announced")
        return parse(content)

    def download_certificates(self) -> dict[str, bytes]:
        """Fetch the platform's current certificates, in PEM by serial.

        The answer is signed with a key that we hold, and only we can decrypt it. Not for a request's path: a
        timer fetches them ahead of need.
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
        verify(headers, body, keys=self._platform, now=now.timestamp())
        with readable("notification"):
            envelope = json.loads(body)
            content = json.loads(self._decrypt(envelope["resource"]))
            event_type = envelope["event_type"]
            facts = facts_of(event_type, content)
            if content.get("appid") not in (None, self._app_id):  # a refund names none
                facts = tuple(replace(fact, merchant=f"{fact.merchant}/{content['appid']}") for fact in facts)
            return Notice(
                notification_id=text_of(envelope, "id"),
                event_type=event_type,
                facts=facts,
                refund=refund_news(event_type, content),
            )

    def _refund_result(self, answer: Mapping[str, Any], asked: Mapping[str, object]) -> RefundResult:
        self.must_match(asked, about(answer))
        status = _REFUND_STATES.get(str(answer.get("status")), RefundStatus.PROCESSING)
        if status is not RefundStatus.SUCCEEDED:
            return RefundResult(status=status, message="ABNORMAL" if status is RefundStatus.STUCK else "")
        return RefundResult(status=status, facts=(refunded_fact(answer, merchant=self.merchant),))


def _trade_path(out_trade_no: str) -> str:
    return f"/v3/pay/transactions/out-trade-no/{quote(out_trade_no, safe='')}"


def _payer_part(method: PayMethod, payer: Payer) -> dict[str, Any]:
    """Build an order's members that describe the shopper."""
    if method is PayMethod.JSAPI:
        return {"payer": {"openid": payer.openid}}
    if method is PayMethod.H5:
        return {"scene_info": {"payer_client_ip": payer.client_ip, "h5_info": {"type": "Wap"}}}
    return {}


def renew(provider: Provider, settings: Settings) -> tuple[str, ...]:
    """Store the platform's new certificates and return their serials, as `Plugin.renew`."""
    offered = cast("WeChatPay", provider).download_certificates()
    try:
        return keep_certificates(Path(settings["PLATFORM_KEYS_DIR"]), offered)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"WECHAT_PLATFORM_KEYS_DIR: the platform's new certificates could not be stored: {error}"
        ) from error
