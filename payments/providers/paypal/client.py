"""PayPal: an order that the shopper approves on PayPal's page, and that we capture then.

PayPal knows an order by a number of its own (`NextAction.reference`). Without it nobody can approve or capture
the order, so a trade whose reference never reached us is not paid, and `create` gets the same order again by its
PayPal-Request-Id. Source: PayPal, Orders v2, Payments v2, Transaction Search v1, "Idempotency" (read 2026-11).
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, tzinfo
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from cryptography.x509 import load_pem_x509_certificates

from payments import money
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.providers.account import Account, Opening, Refunding, unless_refused
from payments.providers.actions import NextAction, NextActionType, PayMethod
from payments.providers.answers import follow_up
from payments.providers.base import (
    BillLine,
    Fact,
    FactKind,
    Notice,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
)
from payments.providers.bearer import Bearer
from payments.providers.documents import in_utc, next_day, text_of
from payments.providers.paypal import facts
from payments.providers.paypal.facts import Document
from payments.providers.paypal.settings import api_url, certificates, client_secret
from payments.providers.paypal.webhook import verify
from payments.providers.settings_fields import Settings
from payments.providers.transport import Limits, reading

MARK = "/purchase_units/@reference_id=='default'/custom_id"
PAGE = 500  # the most that a search lists at once
PAGES_MAX = 40
LISTED = time(3)  # of the next day, at the latest (Source: Transaction Search v1, read 2026-11)
OPEN = frozenset({TradeStatus.PENDING, TradeStatus.APPROVED})
NOT_FOUND = frozenset({"RESOURCE_NOT_FOUND", "INVALID_RESOURCE_ID"})
# event codes of a bill: T0006 is a checkout, T1107 a refund, T1106 a reversal by PayPal, T1201 a chargeback, T1202
# and T1205 return it, T1207 takes it again, T1208 its cancellation: of disputes the amount's sign says which way
# (Source: "Transaction event code (T-code) reference" of 2026-06-14, read 2026-11)
_KINDS = {"T0006": FactKind.PAID, "T1107": FactKind.REFUNDED}
_DISPUTED = frozenset({"T1106", "T1201", "T1202", "T1205", "T1207", "T1208"})


class PayPalOrders(Account):
    """PayPal account; implements `payments.providers.base.Provider`. Thread-safe."""

    channel = facts.CHANNEL
    methods: tuple[PayMethod, ...] = (PayMethod.PAGE,)
    currencies = frozenset(facts.CURRENCIES.split())
    zone: tzinfo = UTC
    unfunded = "REFUND_FAILED_INSUFFICIENT_FUNDS"
    in_use = ("PREVIOUS_REQUEST_IN_PROGRESS", "PAYPAL_REQUEST_ID_PREVIOUSLY_USED", "DUPLICATE_INVOICE_ID")

    def __init__(self, settings: Settings, limits: Limits) -> None:
        super().__init__(settings["MERCHANT_ID"], limits=limits)
        self._url, self._webhook_id = api_url(settings), settings["WEBHOOK_ID"]
        self._certificates = load_pem_x509_certificates(certificates(settings))
        login = httpx.BasicAuth(settings["CLIENT_ID"], client_secret(settings))
        self._bearer = Bearer(self.send, f"{self._url}/v1/oauth2/token", login, clock=self._clock)

    def open(self, wanted: Opening) -> NextAction:
        unit = {
            "invoice_id": wanted.out_trade_no,
            "custom_id": facts.OURS,
            "description": wanted.description[:127],
            "amount": facts.written(wanted.amount_minor, wanted.currency),
        }
        pages = {"return_url": wanted.return_url, "cancel_url": wanted.return_url, "user_action": "PAY_NOW"}
        source = {"paypal": {"experience_context": pages}}
        body = {"intent": "CAPTURE", "purchase_units": [unit], "payment_source": source}
        order = self._call("POST", "/v2/checkout/orders", body, once=wanted.out_trade_no)
        made = facts.unit_of(order)
        self.must_match(
            {"out_trade_no": wanted.out_trade_no, "amount": unit["amount"]},
            {"out_trade_no": made["invoice_id"], "amount": made["amount"]},
        )
        links = {link["rel"]: link for link in order["links"]}
        page = links.get("payer-action") or links["approve"]
        url, number = text_of(page, "href"), text_of(order, "id")
        return NextAction(type=NextActionType.REDIRECT, url=url, reference=number)

    def find(self, out_trade_no: str, reference: str) -> Trade:
        order = self._order(out_trade_no, reference)
        return Trade(status=TradeStatus.NOT_FOUND) if order is None else self._trade(order)

    def capture(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """Capture an order, if the shopper has approved it and we have not closed it meanwhile."""
        trade = self.query(out_trade_no=out_trade_no, reference=reference)
        if trade.status is not TradeStatus.APPROVED:
            return trade
        # where it is refused, captured meanwhile or its means of payment failed, the order says which
        with suppress(ProviderRejected):
            self._call("POST", f"{_path(reference)}/capture", {}, once=f"{out_trade_no}-capture")
        return self._asked_again(out_trade_no, reference)

    def end(self, out_trade_no: str, reference: str) -> Trade:
        """Mark the order so that we never capture it."""
        order = self._order(out_trade_no, reference)
        if order is None:
            return self.closed(out_trade_no)
        trade = self._trade(order)
        if trade.status not in OPEN or facts.payments_of(facts.unit_of(order), "captures"):
            return trade
        self._call("PATCH", _path(reference), [{"op": "replace", "path": MARK, "value": facts.CLOSED}])
        return self._asked_again(out_trade_no, reference)

    def _asked_again(self, out_trade_no: str, reference: str) -> Trade:
        with follow_up():
            trade = self.query(out_trade_no=out_trade_no, reference=reference)
        if trade.status is TradeStatus.NOT_FOUND:
            raise OutcomeUnknown("the order, known before, is unknown now")
        return trade

    def give_back(self, wanted: Refunding) -> RefundResult:
        with follow_up():  # an earlier request under this number may have left, and PayPal forgets its ids in time
            paid, known = self._refunded(wanted.out_trade_no, wanted.out_refund_no, wanted.reference)
        amount = facts.written(wanted.amount_minor, wanted.currency)
        if known is not None:
            self.must_match({"amount": amount}, known)
            return self._refund_result(known, paid)
        if paid is None:
            raise ProviderRejected("NOT_CAPTURED", "no money came in under this number")
        mark = facts.mark_of(wanted.out_trade_no)
        ours = {"amount": amount, "invoice_id": wanted.out_refund_no, "custom_id": mark}
        body = {**ours, "note_to_payer": wanted.reason[:255]} if wanted.reason else ours
        path = f"/v2/payments/captures/{quote(paid.provider_txn_id, safe='')}/refund"
        made = self._call("POST", path, body, once=wanted.out_refund_no)
        self.must_match(ours, made)
        return self._refund_result(made, paid)

    def find_refund(self, out_trade_no: str, out_refund_no: str, reference: str) -> RefundResult:
        paid, known = self._refunded(out_trade_no, out_refund_no, reference)
        return self._refund_result(known, paid) if known else RefundResult(status=RefundStatus.NOT_FOUND)

    def lines(self, day: date) -> Iterator[BillLine]:
        """List what moved on `day`; of a day that is not over, what PayPal lists so far."""
        # what is compared counts as done, so nobody would read a line that comes later
        if next_day(day, time.min, UTC) <= self._clock() < next_day(day, LISTED, UTC):
            raise ProviderUnavailable(f"the bill of {day} may lack lines for three hours")
        return self._searched(day)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
        verify(headers, body, now=now, webhook_id=self._webhook_id, certificates=self._certificates)

    def notice(self, document: Any) -> Notice:
        moved, refund = facts.notified(document, merchant=self.merchant)
        number, kind = text_of(document, "id"), text_of(document, "event_type")
        approved = facts.approved(document)
        return Notice(notification_id=number, event_type=kind, facts=moved, refund=refund, out_trade_no=approved)

    def _order(self, out_trade_no: str, reference: str) -> Document | None:
        """Fetch the order of our number; None if nobody can have paid it."""
        if not reference:
            return None
        order = unless_refused(partial(self._call, "GET", _path(reference)), codes=NOT_FOUND)
        if order is not None:
            number = facts.unit_of(order)["invoice_id"]
            text_of(order, "status")
            self.must_match({"id": reference, "out_trade_no": out_trade_no}, {**order, "out_trade_no": number})
        return order

    def _trade(self, order: Document) -> Trade:
        unit = facts.unit_of(order)
        if paid := facts.paid_facts(unit, merchant=self.merchant):
            return Trade(status=TradeStatus.PAID, facts=paid)
        if any(capture["status"] == "PENDING" for capture in facts.payments_of(unit, "captures")):
            return Trade(status=TradeStatus.PENDING)
        if order["status"] in ("COMPLETED", "VOIDED") or unit.get("custom_id") == facts.CLOSED:
            return self.closed(unit["invoice_id"], currency=unit["amount"]["currency_code"])
        is_approved = order["status"] == "APPROVED"
        return Trade(status=TradeStatus.APPROVED if is_approved else TradeStatus.PENDING)

    def _refunded(self, trade: str, refund: str, reference: str) -> tuple[Fact | None, Document | None]:
        """Find what was paid under our number of a trade, and our refund of it."""
        order = self._order(trade, reference)
        unit = facts.unit_of(order) if order else {}
        paid = facts.paid_facts(unit, merchant=self.merchant)
        made = (one for one in facts.payments_of(unit, "refunds") if one.get("invoice_id") == refund)
        return next(iter(paid), None), next(made, None)

    def _refund_result(self, refund: Document, paid: Fact | None) -> RefundResult:
        paid_minor = paid.amount_minor if paid else None
        return facts.refund_result(refund, merchant=self.merchant, paid_minor=paid_minor)

    def _searched(self, day: date) -> Iterator[BillLine]:
        asked = {"start_date": f"{day}T00:00:00Z", "end_date": f"{day}T23:59:59Z", "page_size": PAGE}
        for page in range(1, PAGES_MAX + 1):
            found = self._call("GET", f"/v1/reporting/transactions?{urlencode({**asked, 'page': page})}")
            entries = [one["transaction_info"] for one in found["transaction_details"]]
            yield from filter(None, [bill_line(entry) for entry in entries])
            if page >= found["total_pages"]:
                return
        raise OutcomeUnknown(f"the bill of {day} has more than {PAGES_MAX} pages")

    def _call(self, method: str, path: str, body: Any = None, *, once: str = "") -> Document:
        """Send one call; `once` is its PayPal-Request-Id, a refusal's code PayPal's first issue."""
        headers = {"Prefer": "return=representation", **({"PayPal-Request-Id": once} if once else {})}
        status, answer = self._bearer.call(method, self._url + path, body, headers=headers)
        if 200 <= status < 300:
            return answer
        with reading("refusal"):
            name, details = text_of(answer, "name"), answer.get("details") or [{}]
            raise ProviderRejected(str(details[0].get("issue") or name), str(answer.get("message", "")))


def _path(reference: str) -> str:
    return f"/v2/checkout/orders/{quote(reference, safe='')}"


def bill_line(entry: Document) -> BillLine | None:
    """Read a line of the bill; None where it neither pays nor takes back, as a fee."""
    code, amount = entry["transaction_event_code"], entry["transaction_amount"]
    kind, is_disputed = _KINDS.get(code), code in _DISPUTED
    if is_disputed:
        kind = FactKind.TAKEN if amount["value"].startswith("-") else FactKind.RETURNED
    if kind is None or entry["transaction_status"] not in ("S", "V"):
        return None
    is_refund, invoice = kind is FactKind.REFUNDED, entry.get("invoice_id", "")
    marked = {**entry, "custom_id": entry.get("custom_field")}
    number = facts.number_of(marked) if is_refund else invoice
    return BillLine(
        kind=kind,
        out_trade_no="" if is_disputed else number,
        provider_txn_id=text_of(entry, "transaction_id"),
        out_refund_no=invoice if is_refund and not facts.is_by_hand(marked) else "",
        amount_minor=money.from_decimal(amount["value"].removeprefix("-"), amount["currency_code"]),
        currency=amount["currency_code"],
        occurred_at=in_utc(datetime.fromisoformat(entry["transaction_initiation_date"])),
        paid_txn_id=entry.get("paypal_reference_id", "") if is_disputed else "",
    )
