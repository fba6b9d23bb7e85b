"""Alipay with RSA2: payments by page and QR code, refunds, bills, notifications.

Source: Alipay open platform, "alipay.trade.page.pay", "alipay.trade.precreate", "alipay.trade.query",
"alipay.trade.close", "alipay.trade.refund", "alipay.trade.fastpay.refund.query",
"alipay.data.dataservice.bill.downloadurl.query", "asynchronous notification" and "signing" (read 2026-11).
Currency is CNY. A refund has no number of Alipay's own: ours (`out_request_no`) identifies it.
"""

from collections.abc import Mapping
from datetime import date, datetime, tzinfo
from functools import partial
from urllib.parse import urlencode

from payments import money
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.account import Opening, Refunding, unless_refused
from payments.providers.actions import NextAction, NextActionType, PayMethod
from payments.providers.alipay import bill as alipay_bill
from payments.providers.alipay.calls import AlipayCalls
from payments.providers.alipay.facts import CURRENCY, notified_facts, refund_of, refunded_fact, trade_of
from payments.providers.alipay.signing import genuine_form
from payments.providers.answers import follow_up
from payments.providers.authenticity import readable
from payments.providers.base import BillLine, Notice, RefundResult, RefundStatus, Trade
from payments.providers.documents import CHINA, TIME_FORMAT, next_day, text_of
from payments.providers.transport import download, reading


class Alipay(AlipayCalls):
    """Application at Alipay; implements `payments.providers.base.Provider`. Thread-safe."""

    methods: tuple[PayMethod, ...] = (PayMethod.PAGE, PayMethod.PRECREATE)
    currencies = frozenset({"CNY"})
    zone: tzinfo = CHINA
    unknown = ("ACQ.TRADE_NOT_EXIST",)
    unfunded = "ACQ.SELLER_BALANCE_NOT_ENOUGH"

    def open(self, wanted: Opening) -> NextAction:
        """Sign an address for the shopper's browser, without a call, or fetch a QR code.

        Either way Alipay has no trade until the shopper arrives; a query says `NOT_FOUND` until then.
        """
        content = {
            "out_trade_no": wanted.out_trade_no,
            "total_amount": money.to_decimal(wanted.amount_minor, wanted.currency),
            "subject": wanted.description,
            "time_expire": wanted.expires_at.astimezone(CHINA).strftime(TIME_FORMAT),
        }
        if wanted.method is PayMethod.PRECREATE:
            answer = self._call("alipay.trade.precreate", content, {"notify_url": wanted.notify_url})
            return NextAction(type=NextActionType.QR_CODE, url=text_of(answer, "qr_code"))
        content["product_code"] = "FAST_INSTANT_TRADE_PAY"
        more = {"notify_url": wanted.notify_url, "return_url": wanted.return_url}
        parameters = self._signed("alipay.trade.page.pay", content, more)
        return NextAction(type=NextActionType.REDIRECT, url=f"{self._url}?{urlencode(parameters)}")

    def find(self, out_trade_no: str, reference: str) -> Trade:
        answer = self._call("alipay.trade.query", {"out_trade_no": out_trade_no})
        return trade_of(answer, out_trade_no=out_trade_no, seller_id=self.merchant)

    def end(self, out_trade_no: str, reference: str) -> Trade:
        call = partial(self._call, "alipay.trade.close", {"out_trade_no": out_trade_no})
        # unknown until the shopper arrives, who still has the link or code
        return self.closed(out_trade_no, may_yet_begin=unless_refused(call, codes=self.unknown) is None)

    def give_back(self, wanted: Refunding) -> RefundResult:
        content = {
            "out_trade_no": wanted.out_trade_no,
            "out_request_no": wanted.out_refund_no,
            "refund_amount": money.to_decimal(wanted.amount_minor, wanted.currency),
            "refund_reason": wanted.reason,
        }
        answer = self._call("alipay.trade.refund", content)
        if answer.get("fund_change") != "Y":
            return self._refund_in_doubt(wanted.out_trade_no, wanted.out_refund_no)
        so_far_minor = money.from_decimal(answer.get("refund_fee", content["refund_amount"]), CURRENCY)
        # of all refunds of the trade, this one among them
        if not wanted.amount_minor <= so_far_minor <= wanted.paid_minor:
            self.must_match({"amount_minor": wanted.amount_minor}, {"amount_minor": so_far_minor})
        fact = refunded_fact(
            answer,
            seller_id=self.merchant,
            out_trade_no=wanted.out_trade_no,
            out_refund_no=wanted.out_refund_no,
            amount_minor=wanted.amount_minor,
            paid_minor=wanted.paid_minor,
        )
        return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))

    def _refund_in_doubt(self, out_trade_no: str, out_refund_no: str) -> RefundResult:
        """Query a refund that was answered N, which also means "done before under this number".

        The query may know nothing yet: Alipay recommends ten seconds between a refund and its query.
        """
        with follow_up():
            found = self.query_refund(out_trade_no=out_trade_no, out_refund_no=out_refund_no)
        if found.status is RefundStatus.NOT_FOUND:
            raise OutcomeUnknown("the refund was taken, and its query does not know it yet")
        return found

    def find_refund(self, out_trade_no: str, out_refund_no: str, reference: str) -> RefundResult:
        number = {"out_trade_no": out_trade_no, "out_request_no": out_refund_no}
        content = {**number, "query_options": ["gmt_refund_pay"]}
        answer = self._call("alipay.trade.fastpay.refund.query", content, repeats=())
        # an answer about a number under which nothing went back may leave the numbers out
        self.must_match(number, answer if "refund_status" in answer else {**number, **answer})
        return refund_of(answer, out_trade_no, out_refund_no, seller_id=self.merchant)

    def lines(self, day: date) -> tuple[BillLine, ...]:
        """Fetch and read the bill. Empty is believed only once the bill is due."""
        content = {"bill_type": "trade", "bill_date": f"{day:%Y-%m-%d}"}
        try:
            answer = self._call("alipay.data.dataservice.bill.downloadurl.query", content, repeats=())
        except ProviderRejected as refused:
            if refused.code.rpartition(".")[2].upper() != alipay_bill.MISSING:
                raise
            if self._clock() < next_day(day, alipay_bill.DUE):
                raise ProviderUnavailable(f"the bill of {day} is not made yet") from refused
            return ()
        with reading("bill's address"):
            url = alipay_bill.checked_address(text_of(answer, "bill_download_url"), gateway_url=self._url)
        packed = download(self._http, url, bytes_max=alipay_bill.MAX_PACKED_BYTES, limits=self._limits)
        return alipay_bill.read_bill(packed, day=day, seller_id=self.merchant)

    def read_notification(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
        """Verify and read a form. It carries no time; `now` judges Alipay's certificates only."""
        given = genuine_form(body, self._trust, app_id=self._app_id, now=now.timestamp())
        with readable("notification"):
            return Notice(
                notification_id=text_of(given, "notify_id"),
                event_type=text_of(given, "trade_status"),
                facts=notified_facts(given, seller_id=self.merchant),
            )
