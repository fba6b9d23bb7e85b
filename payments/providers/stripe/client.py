"""Stripe by its library: payment intents, paid on Alipay's or WeChat's page.

An intent is confirmed as it is created, so that no script of Stripe's runs in our pages. Stripe knows it by a
number of its own (`NextAction.reference`); ours travels as metadata, and as the Idempotency-Key of the call.
Intents do not expire by themselves: our timer closes them at `expires_at`.

Source: Stripe API reference, "Idempotent requests", "PaymentIntents", "Refunds", "Errors" (read 2026-11).
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, tzinfo
from typing import Any

import stripe

from idempotency.webhooks import verifiers as webhooks
from payments.errors import ProviderRejected, SignatureInvalid
from payments.providers.account import Account, Opening, Refunding
from payments.providers.actions import NextAction, NextActionType, PayMethod
from payments.providers.answers import follow_up
from payments.providers.base import BillLine, Notice, RefundResult, RefundStatus, Trade, TradeStatus
from payments.providers.documents import text_of
from payments.providers.settings_fields import Settings
from payments.providers.stripe.bill import bill_lines
from payments.providers.stripe.facts import (
    CHANNEL,
    about,
    canceled_fact,
    facts_of,
    number_of,
    paid_fact,
    refund_news,
    refund_status_of,
    refunded_fact,
    trouble_of,
)
from payments.providers.stripe.lookup import Document, Lookup, Transport, answered, born_at_of
from payments.providers.stripe.settings import METHODS, api_url, method, secret_key, webhook_secrets
from payments.providers.transport import Limits, reading

# whose documents `facts` reads; without it the account's own version would answer
API_VERSION = "2026-10-28.endive"

# Stripe forgets an Idempotency-Key after 24 hours at the earliest
KEY_SECONDS = 12 * 3600

_ENDED = {"succeeded": (TradeStatus.PAID, paid_fact), "canceled": (TradeStatus.CLOSED, canceled_fact)}


class StripeIntents(Account):
    """Stripe account; implements `payments.providers.base.Provider`. Thread-safe."""

    channel = CHANNEL
    methods: tuple[PayMethod, ...] = (PayMethod.INTENT,)
    in_use = ("idempotency_error", "idempotency_key_in_use")
    zone: tzinfo = UTC

    def __init__(self, settings: Settings, limits: Limits) -> None:
        # its name in facts: Stripe's documents do not name it, and asking would cost a call
        super().__init__(settings.get("ACCOUNT", "stripe"), limits=limits)
        self._secret_key, self.verifier = secret_key(settings), webhooks.Stripe(webhook_secrets(settings))
        self._pays_by = method(settings)
        self.currencies = frozenset(METHODS[self._pays_by].split())
        # the library types its parameters as literals, ours come from settings
        self._v1: Any = stripe.StripeClient(
            self._secret_key,
            base_addresses={"api": api_url(settings)},
            stripe_version=API_VERSION,
            http_client=Transport(self.send),
            max_network_retries=0,
        ).v1
        self._lookup = Lookup(self._v1, clock=self._clock)

    def open(self, wanted: Opening) -> NextAction:
        body: Document = {
            "amount": wanted.amount_minor,
            "currency": wanted.currency.lower(),
            "payment_method_types": [self._pays_by],
            "payment_method_data": {"type": self._pays_by},
            "confirm": True,
            "return_url": wanted.return_url,
            "description": wanted.description,
            # Stripe sends to the endpoints of the account; the address is for those who look, and the sandbox
            "metadata": {"out_trade_no": wanted.out_trade_no, "notify_url": wanted.notify_url},
        }
        if self._pays_by == "wechat_pay":
            body["payment_method_options"] = {"wechat_pay": {"client": "web"}}
        with answered():
            intent = self._v1.payment_intents.create(body, _once(wanted.out_trade_no)).to_dict()
            asked = {"amount_minor": wanted.amount_minor, "currency": wanted.currency}
            self.must_match({"out_trade_no": wanted.out_trade_no, **asked}, about(intent))
            return _next_action(intent)

    def query(self, *, out_trade_no: str, reference: str = "") -> Trade:
        """Query an intent; cancel one whose payment failed.

        It waits for another payment method, which only a script in our page could give it; canceled, it makes
        room for a new attempt.
        """
        intent = self._lookup.intent(out_trade_no, reference)
        if intent is None:
            return Trade(status=TradeStatus.NOT_FOUND)
        return self._cancel(intent) if intent["status"] == "requires_payment_method" else self._trade(intent)

    def close(self, *, out_trade_no: str, reference: str = "") -> Trade:
        intent = self._lookup.intent(out_trade_no, reference)
        if intent is None:
            return self.closed(out_trade_no)
        return self._trade(intent) if intent["status"] in _ENDED else self._cancel(intent)

    def _cancel(self, intent: Document) -> Trade:
        number = number_of(intent)
        try:
            with answered():
                canceled = self._v1.payment_intents.cancel(intent["id"]).to_dict()
                asked = {"id": intent["id"], "out_trade_no": number}
                self.must_match(asked, about(canceled))
                return self._trade(canceled)
        except ProviderRejected as refused:
            if refused.code != "payment_intent_unexpected_state":
                raise
        # it was paid or canceled meanwhile, or the wallet is at it just now
        with follow_up():
            return self._trade(self._lookup.retrieved(number, intent["id"]))

    def give_back(self, wanted: Refunding) -> RefundResult:
        numbers = {"out_trade_no": wanted.out_trade_no, "out_refund_no": wanted.out_refund_no}
        asked = {**numbers, "amount_minor": wanted.amount_minor, "currency": wanted.currency}
        with follow_up():  # an earlier request under this number may have left
            intent_id = wanted.reference or self._id_of(wanted.out_trade_no)
            born_at = born_at_of(wanted.out_refund_no)
            # the key may be forgotten, and would then move the money again
            is_old = born_at is None or self._clock() > born_at + KEY_SECONDS
            known = self._lookup.refund(intent_id, wanted.out_refund_no) if intent_id and is_old else None
        if not intent_id:
            raise ProviderRejected("resource_missing", "there is no payment intent of this number")
        if known is not None:
            return self._refund_result(known, intent_id, asked)
        body: Document = {
            "payment_intent": intent_id,
            "amount": wanted.amount_minor,
            "metadata": {**numbers, "reason": wanted.reason[:500]} if wanted.reason else numbers,
            "expand": ["payment_intent"],
        }
        with answered():
            made = self._v1.refunds.create(body, _once(wanted.out_refund_no)).to_dict()
        return self._refund_result(made, intent_id, asked)

    def find_refund(self, out_trade_no: str, out_refund_no: str, reference: str) -> RefundResult:
        intent_id = reference or self._id_of(out_trade_no)
        known = self._lookup.refund(intent_id, out_refund_no) if intent_id else None
        if known is None:
            return RefundResult(status=RefundStatus.NOT_FOUND)
        numbers = {"out_trade_no": out_trade_no, "out_refund_no": out_refund_no}
        return self._refund_result(known, intent_id, numbers)

    def lines(self, day: date) -> Iterable[BillLine]:
        """List the lines of `day`; of a day that is not over, what moved so far."""
        return bill_lines(self._v1.balance_transactions.list, day=day, zone=self.zone)

    def notice(self, document: Any) -> Notice:
        if (shape := document.get("object", "event")) == "v2.core.event":
            document["data"] = {"object": {}}  # it names what changed, and states nothing about it
        elif shape != "event":
            raise ValueError("not an event")
        _must_be_of_our_mode(document, secret_key=self._secret_key)
        # our endpoint may get events of connected accounts, whose facts are theirs
        account = self.merchant if document.get("account") is None else text_of(document, "account")
        return Notice(
            notification_id=text_of(document, "id"),
            event_type=text_of(document, "type"),
            facts=facts_of(document, merchant=account),
            refund=refund_news(document) if account == self.merchant else None,
        )

    def _id_of(self, out_trade_no: str) -> str:
        intent = self._lookup.intent(out_trade_no, "")
        return "" if intent is None else str(intent["id"])

    def _trade(self, intent: Document) -> Trade:
        with reading("payment intent"):
            if intent["status"] not in _ENDED:
                return Trade(status=TradeStatus.PENDING)
            status, fact = _ENDED[intent["status"]]
            return Trade(status=status, facts=(fact(intent, merchant=self.merchant),))

    def _refund_result(self, refund: Document, intent_id: str, asked: Document) -> RefundResult:
        self.must_match({**asked, "payment_intent": intent_id}, about(refund))
        status = refund_status_of(refund)
        if status is not RefundStatus.SUCCEEDED:
            return trouble_of(refund)
        return RefundResult(status=status, facts=(refunded_fact(refund, merchant=self.merchant),))


def _next_action(intent: Document) -> NextAction:
    action, reference = intent["next_action"], text_of(intent, "id")
    if action["type"] == "wechat_pay_display_qr_code":
        code = text_of(action["wechat_pay_display_qr_code"], "data")
        return NextAction(type=NextActionType.QR_CODE, url=code, reference=reference)
    if action["type"] not in {"alipay_handle_redirect", "redirect_to_url"}:
        raise ValueError(f"{action['type']} needs a script in our page")
    return NextAction(
        type=NextActionType.REDIRECT, url=text_of(action[action["type"]], "url"), reference=reference
    )


def _must_be_of_our_mode(event: Mapping[str, object], *, secret_key: str) -> None:
    """Refuse an event of another mode, live or test, than our key's; an endpoint gets both."""
    mode = secret_key.partition("_")[2].partition("_")[0]  # of sk_test_…, the middle
    is_live = {"live": True, "test": False}.get(mode)
    # our endpoint's secret signed it, so an event without a mode is of the endpoint's mode
    if is_live is not None and event.get("livemode", is_live) is not is_live:
        raise SignatureInvalid("an event of the other mode, live or test")


def _once(number: str) -> dict[str, str]:
    """Pass our number as the key; without one the library makes up its own."""
    return {"idempotency_key": number}
