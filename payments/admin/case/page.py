"""The case file of a payment, for its page and as an export."""

from datetime import UTC
from typing import Any

from idempotency.admin.labels import utc
from payments.admin.badges import badge
from payments.admin.case import calls, history, records, story
from payments.admin.case.history import Moment
from payments.admin.case.records import PaymentRows
from payments.admin.pages import link_to_order
from payments.channels.accounts import method_name
from payments.display import amounts, money
from payments.models import Payment


def head(payment: Payment) -> dict[str, Any]:
    """Build what the page begins with."""
    rows = _rows(payment)
    case = history.case_of(payment, rows)
    paid = [fact for fact in rows.facts if fact.kind == "paid"]
    return {
        "sentences": story.sentences(case),
        "sums": [_in_words(sums) for sums in story.sums(case)],
        "state": badge(payment.status),
        "order": link_to_order(payment.order_no),
        "customer": payment.owner or "-",
        "methods": sorted(set(map(method_name, rows.attempts))),
        "numbers": [fact.provider_txn_id for fact in paid],
    }


def timeline(payment: Payment) -> dict[str, Any]:
    """Build the history; a moment's present status is a badge."""
    rows = _rows(payment)
    moments = [(utc(moment.at), moment, badge(*moment.now) if moment.now else "") for moment in _moments(payment)]
    return {"moments": moments, "is_cut": rows.is_cut, "most": records.MOST, "has_money": True}


def export(payment: Payment) -> dict[str, Any]:
    """Build the case file for a program: no more than the page shows, so nothing of the payer."""
    rows = _rows(payment)
    case = history.case_of(payment, rows)
    return {
        "payment": payment.pk.hex,
        "order": payment.order_no,
        "status": payment.status,
        "customer": str(payment.owner or ""),
        "story": [sentence.text for sentence in story.sentences(case)],
        "sums": [_in_words(sums) for sums in story.sums(case)],
        "history": [
            {"at": moment.at.astimezone(UTC).isoformat(), "what": moment.what, "who": moment.who}
            | {"remark": moment.note, **({"now": moment.now[0]} if moment.now else {})}
            for moment in _moments(payment)
        ],
    }


def _moments(payment: Payment) -> list[Moment]:
    others = [*calls.under_keys(payment), *calls.to_providers(payment)]
    return history.moments(_rows(payment), currency=payment.currency, others=others)


def _rows(payment: Payment) -> PaymentRows:
    """Read the rows once for each page."""
    known: PaymentRows | None = getattr(payment, "_case_rows", None)
    if known is None:
        known = payment._case_rows = records.read(payment)  # type: ignore[attr-defined]
    return known


def _in_words(sums: story.Sums) -> dict[str, str]:
    on_its_way_back = money(sums.on_its_way_minor, sums.currency)
    taken = ["taken"] if sums.taken_minor else []
    return {**amounts(sums, "received", "refunded", *taken, "kept"), "on_its_way_back": on_its_way_back}
