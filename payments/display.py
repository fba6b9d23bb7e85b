"""Display of money and of what providers wrote. Data that identifies a payer is masked."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

from idempotency.response.redaction import redacted
from payments.conf import config
from payments.models import Anomaly, Notification, Observation, Refund
from payments.money import EXPONENTS, to_decimal
from payments.providers import registry

SHOWN_MAX = 20_000  # characters of a body
SHOWN_OF_MASKED = 3  # characters

# of an anomaly's details; other names are their own label
LABELS = {
    "out_trade_no": "our number",
    "amount_minor": "amount",
    "expected_minor": "asked for",
    "first_minor": "first amount",
    "paid_minor": "paid",
    "refunded_minor": "refunded",
    "first_sha256": "SHA-256 of the first content",
    "sha256": "SHA-256 of this content",
}

WAITS = "waits for a person"
WAITS_FOR_APPROVAL = "its refund waits for approval"
ASKED_AGAIN = "asked the provider to send it again"


def money(amount_minor: int, currency: str) -> str:
    """Write an amount: `1990, "CNY"` → ``19.90 CNY``, with its sign; of an unknown currency, the minor units."""
    if not amount_minor and not currency:
        return "0"
    if currency not in EXPONENTS:
        return f"{amount_minor:,} minor units of {currency}"
    return f"{Decimal(plain(amount_minor, currency)):,} {currency}"


def plain(amount_minor: int, currency: str) -> str:
    """Write an amount for a spreadsheet: `-199000, "CNY"` → ``-1990.00``; unknown currencies in minor units."""
    try:
        digits = to_decimal(abs(amount_minor), currency)
    except ValueError:
        return str(amount_minor)
    return f"-{digits}" if amount_minor < 0 else digits


def refund_money(refund: Refund) -> str:
    """Write the refund's amount."""
    return money(refund.amount_minor, refund.currency)


def at_stake(anomaly: Anomaly) -> str:
    """Write the money at stake; a dash where it is none, or unknown."""
    return stake(anomaly.kind, anomaly.detail, _currency_of_payment(anomaly))


def stake(kind: str, known: Mapping[str, Any], currency_of_payment: str) -> str:
    """Write the same, from an anomaly's kind and details."""
    currency = known.get("currency") or currency_of_payment
    if kind == Anomaly.Kind.REFUND_EXCEEDS_PAID:
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
        label = LABELS.get(name, name.replace("_", " "))
        if name.endswith("_minor"):
            lines.append((label, money(value, currencies.get(name, stated_in) or "an unknown currency")))
        else:
            lines.append((label, str(value)))
    return lines


def _currency_of_payment(anomaly: Anomaly) -> str:
    return anomaly.payment.currency if anomaly.payment else ""


def _first_currency(anomaly: Anomaly) -> str:
    """Return the currency of the fact that came again with other content."""
    merchant, _, number = anomaly.reference.partition("/")
    facts = Observation.objects.filter(channel=anomaly.channel, merchant=merchant, provider_txn_id=number)
    return facts.values_list("currency", flat=True).first() or ""


def policy(anomaly: Anomaly) -> str:
    """Describe what the machine did about it by itself, and its progress."""
    refund = getattr(anomaly, "refund", None)
    if refund is not None:
        return f"gives {refund_money(refund)} back: {refund.get_status_display()}"
    if anomaly.kind == Anomaly.Kind.NOTIFICATION_FAILED:
        return f"acknowledged it; {WAITS}" if anomaly.detail.get("acknowledged") else ASKED_AGAIN
    return WAITS_FOR_APPROVAL if anomaly.needs_approval else WAITS


def headers(row: Notification) -> str:
    """Write a line for each stored header: the signed ones, and the signature."""
    return "\n".join(f"{name}: {value}" for name, value in sorted(row.headers.items())) or "none"


def body(row: Notification) -> str:
    """Show the received bytes: a line for each parameter, or indented JSON; the payer masked."""
    raw = bytes(row.body)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return _cut(_form(raw.decode("utf-8", "replace")))
    if not isinstance(document, dict | list):
        return _cut(_form(raw.decode("utf-8", "replace")))
    safe = json.loads(redacted(raw, content_type="application/json", names=tuple(_payer_names())))
    return _cut(json.dumps(safe, indent=2, ensure_ascii=False))


def masked(value: str) -> str:
    """Mask all but the beginning: enough to compare two by eye, too little to find the person."""
    return f"{value[:SHOWN_OF_MASKED]}…" if value else ""


def _form(text: str) -> str:
    pairs, payer = parse_qsl(text, keep_blank_values=True), _payer_names()
    return "\n".join(f"{name}={masked(value) if name.lower() in payer else value}" for name, value in pairs)


def _payer_names() -> frozenset[str]:
    """Collect the names of all channels: a stored notification may outlive its account."""
    known: dict[str, Mapping[str, str]] = {channel: {} for channel in registry.names()}
    channels = {**known, **config().providers}
    return frozenset().union(*(registry.plugin(*each).payer_names for each in channels.items()))


def _cut(text: str) -> str:
    if len(text) <= SHOWN_MAX:
        return text
    return f"{text[:SHOWN_MAX]}\n… the first {SHOWN_MAX:,} of {len(text):,} characters"
