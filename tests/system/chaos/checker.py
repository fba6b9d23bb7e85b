"""The judge: clients' answers, the database and the sandbox's charges must agree.

Each violation is a sentence. `open_ends` names what is on its way and must not be any more once the system has come
to rest; `violations` names what must never be.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.system.chaos import answers
from tests.system.chaos.history import History
from tests.system.chaos.pace import LEASE_SECONDS
from tests.system.chaos.stage import ON_SALE, Stage

SHOWN_MAX = 5  # of one kind

# sentence -> a statement that gives its values; in a sound database none gives a row
OPEN_ENDS: Mapping[str, str] = {
    "ledger entry {} of {} is still {}": (
        "SELECT key, scope, state FROM idempotency_ledgerentry WHERE state <> 'finished'"
    ),
    "refund {} is still {}": (
        "SELECT id, status FROM payments_refund WHERE status IN ('requested', 'processing', 'uncertain')"
    ),
    "attempt {} is still {}": ("SELECT id, status FROM payments_attempt WHERE status = 'uncertain'"),
    "event {} of payment {} was never acted on": (
        "SELECT number, payment_id FROM payments_paymentevent WHERE handled_at IS NULL"
    ),
    "order {} is closing since {} and not closed": (
        "SELECT id, closing_at FROM shop_order WHERE status = 'pending' AND closing_at IS NOT NULL"
    ),
    "order {} is past its time since {} and not closed": (
        "SELECT id, expires_at FROM shop_order WHERE status = 'pending' AND expires_at < now() - interval '20 s'"
    ),
    "{} notification {} is still {}: {}": (
        "SELECT channel, notification_id, verdict, detail FROM payments_notification"
        " WHERE verdict IN ('held', 'error')"
    ),
    "anomaly {} {} was never settled: {}": (
        "SELECT kind, reference, detail FROM payments_anomaly WHERE resolved_at IS NULL"
    ),
}

NEVER: Mapping[str, str] = {
    "key {} has {} orders: {}": (
        "SELECT note, count(*), string_agg(id::text, ', ') FROM shop_order WHERE note <> ''"
        " GROUP BY note HAVING count(*) > 1"
    ),
    "key {} of {} stands {} times in the ledger": (
        "SELECT key, scope, count(*) FROM idempotency_ledgerentry GROUP BY key, scope HAVING count(*) > 1"
    ),
    "key {} has {} refunds: {}": (
        "SELECT reason, count(*), string_agg(id::text, ', ') FROM payments_refund WHERE anomaly_id IS NULL"
        " GROUP BY reason HAVING count(*) > 1"
    ),
    "order {} has {} payments": (
        "SELECT order_id, count(*) FROM payments_payment GROUP BY order_id HAVING count(*) > 1"
    ),
    "run {} of key {} was overtaken after {} s, within its lease": (
        "SELECT a.fence, e.key, round(extract(epoch FROM a.ended_at - a.started_at), 2)"
        " FROM idempotency_ledgerattempt a JOIN idempotency_ledgerentry e ON e.id = a.entry_id"
        f" WHERE a.outcome = 'lost' AND a.ended_at < a.started_at + interval '{LEASE_SECONDS} s'"
    ),
    "{} notification {} was taken in {} times": (
        "SELECT channel, notification_id, count(*) FROM payments_notification"
        " GROUP BY channel, notification_id HAVING count(*) > 1"
    ),
    "{} payment {} was observed {} times": (
        "SELECT kind, provider_txn_id, count(*) FROM payments_observation"
        " GROUP BY channel, merchant, kind, provider_txn_id HAVING count(*) > 1"
    ),
    "payment {} believes {} paid and {} refunded, its facts say {} and {}": (
        "SELECT p.id, p.paid_minor, p.refunded_minor, f.paid, f.refunded FROM payments_payment p"
        " CROSS JOIN LATERAL (SELECT"
        " coalesce(sum(o.amount_minor) FILTER (WHERE o.kind = 'paid'), 0) AS paid,"
        " coalesce(sum(o.amount_minor) FILTER (WHERE o.kind = 'refunded'), 0) AS refunded"
        " FROM payments_observation o JOIN payments_attempt a ON a.id = o.attempt_id"
        " WHERE a.payment_id = p.id AND o.credited) f"
        " WHERE (p.paid_minor, p.refunded_minor) IS DISTINCT FROM (f.paid, f.refunded)"
    ),
    "payment {} holds {} in reserve for refunds of {}": (
        "SELECT p.id, p.reserved_minor, r.open FROM payments_payment p CROSS JOIN LATERAL"
        " (SELECT coalesce(sum(amount_minor), 0) AS open FROM payments_refund WHERE payment_id = p.id"
        " AND anomaly_id IS NULL AND status IN ('requested', 'processing', 'uncertain')) r"
        " WHERE p.reserved_minor <> r.open"
    ),
    "order {} is {}, its payment {} ({} paid, {} refunded)": (
        "SELECT o.id, o.status, p.status, p.paid_minor, p.refunded_minor FROM shop_order o"
        " LEFT JOIN payments_payment p ON p.order_id = o.id WHERE o.status <> ALL (CASE"
        " WHEN coalesce(p.paid_minor, 0) = 0 THEN ARRAY['pending', 'closed']"
        " WHEN p.paid_minor = p.refunded_minor THEN ARRAY['refunded'] ELSE ARRAY['paid'] END)"
    ),
    "order {} is {}, and the warehouse heard {}": (
        "SELECT o.id, o.status, coalesce(f.status, 'nothing') FROM shop_order o"
        " LEFT JOIN shop_fulfilment f ON f.order_id = o.id WHERE coalesce(f.status, 'nothing') <>"
        " CASE o.status WHEN 'paid' THEN 'released' WHEN 'refunded' THEN 'recalled' ELSE 'nothing' END"
    ),
    "journal entry {} adds up to {}": (
        "SELECT entry_id, sum(amount_minor) FROM payments_journalline GROUP BY entry_id, currency"
        " HAVING sum(amount_minor) <> 0"
    ),
    "the books still hold {} for nobody's order": (
        "SELECT -sum(amount_minor) FROM payments_journalline WHERE account = 'held' HAVING sum(amount_minor) <> 0"
    ),
    "orders count {} in the books, payments believe {}": (
        "SELECT b.minor, p.minor FROM (SELECT coalesce(-sum(amount_minor), 0) AS minor FROM payments_journalline"
        " WHERE account = 'orders') b, (SELECT coalesce(sum(paid_minor - refunded_minor), 0) AS minor"
        " FROM payments_payment) p WHERE b.minor <> p.minor"
    ),
    "flash sale {}: {} of {} units are sold, {} purchases stand": (
        "SELECT s.id, s.sold, s.units, p.n FROM shop_flashsale s CROSS JOIN LATERAL (SELECT count(*) AS n FROM"
        " shop_flashsalepurchase WHERE sale_id = s.id AND returned_at IS NULL) p"
        " WHERE s.sold > s.units OR s.sold <> p.n"
    ),
    "user {} has {} units of flash sale {}": (
        "SELECT buyer_id, count(*), sale_id FROM shop_flashsalepurchase WHERE returned_at IS NULL"
        " GROUP BY buyer_id, sale_id HAVING count(*) > 1"
    ),
    "order {} is {}, and its flash sale unit was returned at {}": (
        "SELECT o.id, o.status, p.returned_at FROM shop_flashsalepurchase p JOIN shop_order o ON o.id = p.order_id"
        " WHERE (o.status = 'closed') <> (p.returned_at IS NOT NULL)"
    ),
    "user {} has drawn {} coupons of campaign {}": (
        "SELECT drawn_by_id, count(*), campaign_id FROM shop_coupon WHERE drawn_by_id IS NOT NULL"
        " GROUP BY drawn_by_id, campaign_id HAVING count(*) > 1"
    ),
    "coupon {} exists {} times": ("SELECT code, count(*) FROM shop_coupon GROUP BY code HAVING count(*) > 1"),
    "anomaly {} {} cannot come of the faults that were made: {}": (
        "SELECT kind, reference, detail FROM payments_anomaly WHERE kind IN"
        " ('unknown_trade', 'merchant_mismatch', 'content_changed', 'refund_exceeds_paid', 'refund_failed')"
    ),
}

TRADES = """
SELECT a.id, a.payment_id, a.channel, a.amount_minor, p.paid_minor - p.refunded_minor, p.order_id
FROM payments_attempt a JOIN payments_payment p ON p.id = a.payment_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where to look.

    Attributes:
        database: a connection, not over a wire.
        charges: of the sandbox, `GET /_control/charges`.
        undelivered: how many copies of notifications it still means to send.
        history: the answers that clients got.
        stage: what was there before.
    """

    database: psycopg.Connection
    charges: list[dict[str, Any]]
    undelivered: int
    history: History
    stage: Stage


def open_ends(seen: Evidence) -> list[str]:
    """What is still on its way; empty when the system has come to rest."""
    found = [
        *_found(seen.database, OPEN_ENDS),
        *_bounded(_money(seen)),
        *_bounded(answers.unanswered(seen.history)),
    ]
    return [*found, f"{seen.undelivered} notifications are not acknowledged"] if seen.undelivered else found


def violations(seen: Evidence) -> list[str]:
    """What must never be, at rest."""
    found = list(_found(seen.database, NEVER))
    for check in (_stock, _books):
        found += _bounded(check(seen))
    for each in answers.CHECKS:
        found += _bounded(each(seen.history, seen.database, seen.stage))
    return found


def _found(database: psycopg.Connection, checks: Mapping[str, str]) -> Iterator[str]:
    for sentence, statement in checks.items():
        rows = database.execute(statement).fetchall()
        yield from _bounded(sentence.format(*map(_shown, row)) for row in rows)


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else getattr(value, "hex", None) or str(value)


def _bounded(sentences: Iterable[str]) -> list[str]:
    """The first few of a kind, and how many more there are."""
    every = list(sentences)
    more = len(every) - SHOWN_MAX
    return every if more <= 0 else [*every[:SHOWN_MAX], f"… and {more} more such"]


def _stock(seen: Evidence) -> Iterator[str]:
    for sku, shelf, taken in seen.database.execute(ON_SALE).fetchall():
        before = seen.stage.shelf[sku]
        if shelf < 0:
            yield f"{sku}: {taken} of {before} units are sold, and {shelf} are on the shelf"
        if shelf + taken != before:
            yield f"{sku}: {before} units were there, {shelf} are on the shelf and {taken} in orders"


def _money(seen: Evidence) -> Iterator[str]:
    """An order keeps one charge at most, and we believe what was really charged."""
    attempts = {row[0].hex: row for row in seen.database.execute(TRADES).fetchall()}
    kept: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for charge in seen.charges:
        number = charge["out_trade_no"]
        if number in attempts:
            kept[attempts[number][1]].append(charge)
        elif charge["charged_minor"]:
            yield f"{charge['channel']} charged {charge['charged_minor']} under {number}, which nobody knows"
    for _, payment_id, _, _, believed, order_id in {row[1]: row for row in attempts.values()}.values():
        there = [(one["channel"], one["charged_minor"] - one["refunded_minor"]) for one in kept[payment_id]]
        standing = [one for one in there if one[1]]
        if len(standing) > 1:
            yield f"order {order_id.hex}: several charges are kept: {standing}"
        if sum(minor for _, minor in there) != believed:
            yield f"order {order_id.hex}: the payment believes {believed}, the providers kept {standing or 'nothing'}"


def _books(seen: Evidence) -> Iterator[str]:
    """Each provider's account in the journal is what the sandbox kept."""
    there: dict[str, int] = defaultdict(int)
    for charge in seen.charges:
        there[charge["channel"]] += charge["charged_minor"] - charge["refunded_minor"]
    rows = seen.database.execute(
        "SELECT split_part(account, ':', 2), sum(amount_minor) FROM payments_journalline"
        " WHERE account LIKE 'provider:%' GROUP BY 1"
    ).fetchall()
    booked: dict[str, int] = defaultdict(int, {channel: int(minor) for channel, minor in rows})
    for channel in sorted({*there, *booked}):
        if there[channel] != booked[channel]:
            yield f"{channel} kept {there[channel]}, the books say {booked[channel]}"
