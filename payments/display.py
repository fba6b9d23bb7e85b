"""Display of money and of what providers wrote. Data that identifies a payer is masked."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from idempotency.response.redaction import redacted
from payments.conf import config
from payments.models import Anomaly, Notification, Observation, Refund
from payments.money import EXPONENTS, to_decimal
from payments.providers import registry

SHOWN_OF_MASKED = 3  # characters

# of an anomaly's details
LABELS = {
    "out_trade_no": gettext_noop("our number"),
    "amount_minor": gettext_noop("amount"),
    "expected_minor": gettext_noop("amount asked for"),
    "first_minor": gettext_noop("first amount"),
    "paid_minor": gettext_noop("paid"),
    "refunded_minor": gettext_noop("refunded"),
    "claimed_minor": gettext_noop("claimed by the payer"),
    "taken_minor": gettext_noop("taken back"),
    "returned_minor": gettext_noop("returned to us"),
    "charged_as": gettext_noop("the provider's number of the payment"),
    "respond_by": gettext_noop("to be answered by"),
    "stated_at": gettext_noop("stated at"),
    "first_sha256": gettext_noop("SHA-256 of the first content"),
    "sha256": gettext_noop("SHA-256 of this content"),
    "error": gettext_noop("error"),
    "message": gettext_noop("message"),
    "currency": gettext_noop("currency"),
    "approval": gettext_noop("approval"),
    "acknowledged": gettext_noop("acknowledged"),
    "final": gettext_noop("final answer of the provider"),
}

# what the machine stores in columns of text, whose reader may speak another language
REFUNDED_UNDER = gettext_noop("refunded %(money)s under %(number)s")
IN_BILL_OF = gettext_noop("it is in the bill of %(day)s")
AGREES = gettext_noop("it agrees now")
ANSWERED = gettext_noop("answered %(status)s")
STORED_TEXTS = (
    *(REFUNDED_UNDER, IN_BILL_OF, AGREES, ANSWERED),
    gettext_noop("processed later"),
    gettext_noop("it came before its payment, and was applied after it"),
    gettext_noop("the provider closed it without moving money"),
    gettext_noop("an operator recorded that it did not move"),
    gettext_noop("abandoned by an operator before the provider was asked"),
    gettext_noop("given up: there is no such endpoint any more"),
    *(gettext_noop("amount mismatch"), gettext_noop("paid after close"), gettext_noop("paid twice")),
    *(gettext_noop("open"), gettext_noop("won"), gettext_noop("lost")),
    *(gettext_noop("needed"), gettext_noop("given"), gettext_noop("yes")),
)
_PATTERNS = {
    template: re.compile(re.sub(r"%\\\((\w+)\\\)s", r"(?P<\1>.+)", re.escape(template)))
    for template in STORED_TEXTS
}
# errors of calls, each with the sentence that stands before it
EXPLAINED = {
    re.compile(r"(\w+: )?\S+ answered \d+"): gettext_noop("It answered with an error, and the outcome is unknown"),
    re.compile(r"(\w+: )?\S+ cannot be reached: \w+"): gettext_noop(
        "It could not be reached, and nothing was sent"
    ),
    re.compile(r"(\w+: )?no answer from \S+: \w+"): gettext_noop("It gave no answer, and the outcome is unknown"),
}
SOURCES = {
    "notification": gettext_noop("notification"),
    "query": gettext_noop("query"),
    "close": gettext_noop("closing"),
    "refund": gettext_noop("refund"),
    "bill": gettext_noop("bill"),
    "operator": gettext_noop("operator"),
}


def money(amount_minor: int, currency: str) -> str:
    """Write an amount: `1990, "CNY"` → ``19.90 CNY``. An unknown currency: minor units."""
    if not amount_minor and not currency:
        return "–"
    if currency not in EXPONENTS:
        return _("%(amount)s minor units of %(currency)s") % {"amount": f"{amount_minor:,}", "currency": currency}
    return f"{Decimal(plain(amount_minor, currency)):,} {currency}"


def plain(amount_minor: int, currency: str) -> str:
    """Write an amount for a spreadsheet: `-199000, "CNY"` → ``-1990.00``."""
    try:
        digits = to_decimal(abs(amount_minor), currency)
    except ValueError:
        return str(amount_minor)
    return f"-{digits}" if amount_minor < 0 else digits


def amounts(row: Any, *names: str) -> dict[str, str]:
    """Write the fields of these names, which end with ``_minor``, in the row's currency."""
    return {name: money(getattr(row, f"{name}_minor"), row.currency) for name in names}


def refund_money(refund: Refund) -> str:
    return money(refund.amount_minor, refund.currency)


def at_stake(anomaly: Anomaly) -> str:
    """Write the money at stake; a dash where it is none, or unknown."""
    known: Mapping[str, Any] = anomaly.detail
    currency = known.get("currency") or _currency_of_payment(anomaly)
    if anomaly.kind == Anomaly.Kind.REFUND_EXCEEDS_PAID:
        return money(known.get("refunded_minor", 0) - known.get("paid_minor", 0), currency)
    return money(known["amount_minor"], currency) if known.get("amount_minor") and currency else "-"


def details(anomaly: Anomaly) -> list[tuple[str, str]]:
    """List the anomaly's details with labels; amounts as money, each in its own currency."""
    known: Mapping[str, Any] = anomaly.detail
    stated_in = known.get("currency") or _currency_of_payment(anomaly)
    currencies = {
        "expected_minor": _currency_of_payment(anomaly),
        "first_minor": _first_currency(anomaly) or stated_in,
    }
    lines = []
    for name, value in known.items():
        label = _(LABELS.get(name, name.replace("_", " ")))
        if name.endswith("_minor"):
            lines.append((label, money(value, currencies.get(name, stated_in) or _("an unknown currency"))))
        else:
            lines.append((label, stored_text(str(value))))
    return lines


def policy(anomaly: Anomaly) -> str:
    """Describe what the machine did about it by itself, and its progress."""
    refund = getattr(anomaly, "refund", None)
    if refund is not None:
        about = {"money": refund_money(refund), "status": refund.get_status_display()}
        return _("gives %(money)s back: %(status)s") % about
    if anomaly.kind == Anomaly.Kind.NOTIFICATION_FAILED:
        if anomaly.detail.get("acknowledged"):
            return _("acknowledged it; waits for a person")
        return _("asked the provider to send it again")
    return _("its refund waits for approval") if anomaly.needs_approval else _("waits for a person")


def stored_text(text: str) -> str:
    """Translate what the machine stored, and explain its errors; other words stay as they are."""
    for error, sentence in EXPLAINED.items():
        if error.fullmatch(text):
            return f"{_(sentence)} ({text})"
    for template, pattern in _PATTERNS.items():
        if known := pattern.fullmatch(text):
            return _(template) % known.groupdict()
    return text


def source_in_words(fact: Observation) -> str:
    return _(SOURCES.get(fact.source, fact.source))


def headers(row: Notification) -> bytes:
    """Write a line for each stored header: the signed ones, and the signature."""
    return "\n".join(f"{name}: {value}" for name, value in row.headers.items()).encode()


def body(row: Notification) -> bytes:
    """Mask the payer in the received bytes: JSON, or a line for each parameter."""
    raw = bytes(row.body)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict | list):
        return _form(raw.decode("utf-8", "replace")).encode()
    return redacted(raw, content_type="application/json", names=tuple(_payer_names()))


def masked(value: str) -> str:
    """Mask all but the beginning: enough to compare two by eye, too little to find the person."""
    return f"{value[:SHOWN_OF_MASKED]}…" if value else ""


def _currency_of_payment(anomaly: Anomaly) -> str:
    return anomaly.payment.currency if anomaly.payment else ""


def _first_currency(anomaly: Anomaly) -> str:
    """Return the currency of the fact that came again with other content."""
    merchant, _, number = anomaly.reference.partition("/")
    facts = Observation.objects.filter(channel=anomaly.channel, merchant=merchant, provider_txn_id=number)
    return facts.values_list("currency", flat=True).first() or ""


def _form(text: str) -> str:
    pairs, payer = parse_qsl(text, keep_blank_values=True), _payer_names()
    return "\n".join(f"{name}={masked(value) if name.lower() in payer else value}" for name, value in pairs)


def _payer_names() -> frozenset[str]:
    """Collect the names of all channels: a stored notification may outlive its account."""
    known: dict[str, Mapping[str, str]] = {channel: {} for channel in registry.names()}
    channels = {**known, **config().providers}
    return frozenset().union(*(registry.plugin(*each).payer_names for each in channels.items()))
