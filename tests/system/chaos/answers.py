"""The part of the checker that reads the history: answers against what is there."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from tests.system.chaos.history import History, Intent
from tests.system.chaos.stage import Stage

# what a sound client may hear in the end, beside success
REFUSALS: dict[str, frozenset[str]] = {
    "order": frozenset({"out_of_stock"}),
    "flash": frozenset({"sold_out", "already_bought"}),
    "coupon": frozenset({"none_left"}),
    "pay": frozenset({"order_paid", "order_closed"}),
    "cancel": frozenset({"order_paid"}),
    "refund": frozenset({"refund_exceeds_paid"}),
    "like": frozenset(),
}

Check = Callable[[History, psycopg.Connection, Stage], Iterator[str]]


def unanswered(history: History) -> Iterator[str]:
    """Intents that were asked about and never had a final answer."""
    for intent in history.of():
        if not intent.is_settled:
            yield f"{intent.kind} {intent.key} never had a final answer: {intent.story()}"


def same_answers(history: History, database: psycopg.Connection, stage: Stage) -> Iterator[str]:
    """One key, one answer; after 202 the newer state under 202, or a refusal."""
    for intent in history.of():
        finals = [answer for answer in intent.answers if answer.is_final]
        known = {(answer.status, answer.body) for answer in finals if answer.status != 202}
        promised = any(answer.status == 202 for answer in finals)
        if len(known) > 1 or (promised and any(200 <= status < 300 for status, _ in known)):
            yield f"{intent.kind} {intent.key} was answered differently: {_differences(intent)}"


def expected_refusals(history: History, database: psycopg.Connection, stage: Stage) -> Iterator[str]:
    """Answers that deny what exists, or refuse what cannot be refused."""
    for intent in history.of():
        for answer in intent.answers:
            if answer.is_final and not answer.is_effect and answer.code not in REFUSALS[intent.kind]:
                yield f"{intent.kind} {intent.key} was refused with {answer.status} {answer.code}"


def orders_are_there(history: History, database: psycopg.Connection, stage: Stage) -> Iterator[str]:
    """Acknowledged orders exist, with their user and key; refused ones do not."""
    rows = database.execute("SELECT id, user_id, note FROM shop_order").fetchall()
    by_id = {order_id.hex: (user_id, note) for order_id, user_id, note in rows}
    notes = {note for _, _, note in rows}
    for intent in history.of("order", "flash"):
        for said_id in {answer.document["id"] for answer in intent.answers if answer.is_effect}:
            wanted = (stage.users[intent.user], intent.key if intent.kind == "order" else "")
            if said_id not in by_id:
                yield f"order {said_id} was acknowledged under key {intent.key}, and is lost"
            elif by_id[said_id] != wanted:
                yield f"order {said_id} was answered under key {intent.key}, and is that of {by_id[said_id]}"
        refused = intent.answers and not intent.is_done and intent.final is not None
        if intent.kind == "order" and refused and intent.key in notes:
            yield f"order under key {intent.key} was refused, and is there"


def payments_are_there(history: History, database: psycopg.Connection, stage: Stage) -> Iterator[str]:
    """Acknowledged payments exist, one an order; a second refund of one key does not."""
    payments = {row[0].hex: row[1].hex for row in database.execute("SELECT id, order_id FROM payments_payment")}
    for intent in history.of("pay"):
        for said_id in {answer.document["id"] for answer in intent.answers if answer.is_effect}:
            if payments.get(said_id) != intent.about:
                yield f"payment {said_id} of order {intent.about} was acknowledged, and is lost"
    refunds = {
        row[0].hex: (row[1].hex, row[2], row[3])
        for row in database.execute("SELECT id, payment_id, amount_minor, reason FROM payments_refund")
    }
    for intent in history.of("refund"):
        wanted = (intent.about, intent.body["amount_minor"], intent.key)
        for said_id in {answer.document["id"] for answer in intent.answers if answer.is_effect}:
            if refunds.get(said_id) != wanted:
                yield f"refund {said_id} under key {intent.key} was acknowledged, and is {refunds.get(said_id)}"


def draws_are_there(history: History, database: psycopg.Connection, stage: Stage) -> Iterator[str]:
    """A user's answered code is theirs, and what they liked is liked."""
    rows = database.execute("SELECT drawn_by_id, code FROM shop_coupon WHERE drawn_by_id IS NOT NULL").fetchall()
    drawn: dict[int, set[str]] = defaultdict(set)
    for user_id, code in rows:
        drawn[user_id].add(code)
    for intent in history.of("coupon"):
        codes = {answer.document["code"] for answer in intent.answers if answer.is_effect}
        if not codes <= drawn[stage.users[intent.user]]:
            yield f"user {intent.user} was answered {codes} under key {intent.key}, and has {drawn[stage.users[intent.user]]}"
    likes = {user_id for (user_id,) in database.execute("SELECT user_id FROM shop_like").fetchall()}
    for intent in history.of("like"):
        if intent.is_done and stage.users[intent.user] not in likes:
            yield f"user {intent.user} was answered that they like the {intent.about}, and do not"


def cancelled_stay_closed(history: History, database: psycopg.Connection, stage: Stage) -> Iterator[str]:
    """Orders that were answered as closed have not been paid for."""
    rows = database.execute("SELECT id, status FROM shop_order").fetchall()
    statuses = {order_id.hex: status for order_id, status in rows}
    for intent in history.of("cancel"):
        heard = {answer.document["status"] for answer in intent.answers if answer.status == 200}
        if "closed" in heard and statuses.get(intent.about) != "closed":
            yield f"order {intent.about} was answered as closed, and is {statuses.get(intent.about)}"


CHECKS: tuple[Check, ...] = (
    same_answers,
    expected_refusals,
    orders_are_there,
    payments_are_there,
    draws_are_there,
    cancelled_stay_closed,
)


def _differences(intent: Intent) -> str:
    """Each different answer once, with when and where it was heard first."""
    seen: dict[Any, str] = {}
    for answer in sorted(intent.answers, key=lambda answer: answer.at):
        if answer.is_final:
            what = f"{answer.status} {answer.body.decode(errors='replace')[:400]}"
            seen.setdefault((answer.status, answer.body), f"at {answer.at:.2f} s by web {answer.web}: {what}")
    return " | ".join(seen.values())
