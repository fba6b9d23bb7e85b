"""Life of a sandbox trade, alike for all: opened, paid, closed, refunded, notified.

Each change is one write transaction; a `Refused` leaves nothing behind.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

from payments.providers.documents import CHINA
from payments.sandbox import faults, state


class Refused(Exception):
    """A refusal of the platform.

    Args:
        reason: ``not_found``, ``used``, ``paid``, ``closed``, ``exceeds``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Movement(NamedTuple):
    """Money that reached our account, or with `made` went back by that refund."""

    at: float
    trade: sqlite3.Row
    made: sqlite3.Row | None

    @property
    def minor(self) -> int:
        return int(self.trade["charged_minor"] if self.made is None else self.made["amount_minor"])


def moved(channel: str, *, day: date | None = None) -> list[Movement]:
    """List what moved, all of it or on a day in China, oldest first."""
    ours = "SELECT * FROM trades WHERE channel = ? AND state = 'SUCCESS' AND seller = ''"
    paid = {trade["out_trade_no"]: trade for trade in state.store().rows(ours, channel)}
    found = [Movement(trade["paid_at"], trade, None) for trade in paid.values()]
    for made in state.store().rows("SELECT * FROM refunds"):
        if made["out_trade_no"] in paid:
            found.append(Movement(made["created_at"], paid[made["out_trade_no"]], made))
    on_day = [one for one in found if day in (None, datetime.fromtimestamp(one.at, CHINA).date())]
    return sorted(on_day, key=lambda one: one.at)


def open_trade(*, channel: str, out_trade_no: str, amount_minor: int, **details: Any) -> sqlite3.Row:
    """Open the trade, or return the very same; Refused if its number stands for another amount."""
    with state.store().write() as connection:
        known = state.store().trade(channel, out_trade_no)
        if known is None:
            columns = {
                "out_trade_no": out_trade_no,
                "channel": channel,
                "amount_minor": amount_minor,
                "transaction_id": f"42000{secrets.randbelow(10**23):023d}",
                "prepay": secrets.token_urlsafe(9).replace("-", "x").replace("_", "y"),
                "created_at": time.time(),
                **details,
            }
            marks = ", ".join("?" for _ in columns)
            insert = f"INSERT INTO trades ({', '.join(columns)}) VALUES ({marks}) RETURNING *"  # noqa: S608  our own names
            (known,) = connection.execute(insert, list(columns.values()))
    if known["amount_minor"] != amount_minor:
        raise Refused("used")
    if known["state"] != "NOTPAY":
        raise Refused("paid" if known["state"] == "SUCCESS" else "closed")
    return known


def pay(out_trade_no: str) -> sqlite3.Row:
    """Pay as the shopper. A paid trade is charged no more; a closed or expired one is refused.

    The fault `pay_closed` stands for a payment that was on its way by then, and charges.
    """
    with state.store().write() as connection:
        found = existing(out_trade_no)
        if found["state"] == "SUCCESS":
            return found
        late = faults.current()["pay_closed"] and found["channel"] != "stripe"
        if (found["state"] == "CLOSED" or expired(found)) and not late:
            raise Refused("closed")
        charged = faults.charged_minor(found["amount_minor"])
        currency = faults.charged_currency(found["currency"])
        paid: sqlite3.Row
        (paid,) = connection.execute(
            "UPDATE trades SET state = 'SUCCESS', charged_minor = ?, currency = ?, paid_at = ?, seller = ?"
            " WHERE out_trade_no = ? RETURNING *",
            [charged, currency, time.time(), faults.wrong_seller(found["channel"]), out_trade_no],
        )
        enqueue(connection, paid, event="paid")
    return paid


def close(*, channel: str, out_trade_no: str) -> None:
    """Close the trade unpaid, so that nobody can pay it any more."""
    with state.store().write() as connection:
        if existing(out_trade_no, channel)["state"] == "SUCCESS":
            raise Refused("paid")
        closing = "UPDATE trades SET state = 'CLOSED' WHERE out_trade_no = ? RETURNING *"
        (closed,) = connection.execute(closing, [out_trade_no])
        if channel == "stripe":  # the others do not notify the merchant of its own close
            enqueue(connection, closed, event="closed")


def refund(
    *, channel: str, out_trade_no: str, out_refund_no: str, amount_minor: int, refund_id: str = ""
) -> tuple[sqlite3.Row, bool]:
    """Refund; return the refund, and True if money moved now, not by an earlier call.

    Args:
        refund_id: the platform's own number, where it has another form.
    """
    refund_id = refund_id or f"50300{secrets.randbelow(10**23):023d}"
    with state.store().write() as connection:
        trade = existing(out_trade_no, channel)
        if trade["state"] != "SUCCESS" or trade["seller"]:
            raise Refused("not_found")
        known = find_refund(out_trade_no, out_refund_no)
        if known is not None:
            if known["amount_minor"] != amount_minor:
                raise Refused("used")
            return known, False
        if trade["refunded_minor"] + amount_minor > trade["charged_minor"]:
            raise Refused("exceeds")
        (made,) = connection.execute(
            "INSERT INTO refunds VALUES (?, ?, ?, ?, ?) RETURNING *",
            [out_refund_no, out_trade_no, refund_id, amount_minor, time.time()],
        )
        (trade,) = connection.execute(
            "UPDATE trades SET refunded_minor = refunded_minor + ? WHERE out_trade_no = ? RETURNING *",
            [amount_minor, out_trade_no],
        )
        enqueue(connection, trade, event="refunded", refund=made)
    return made, True


def refund_by_hand(*, out_trade_no: str, amount_minor: int) -> sqlite3.Row:
    """Refund in the platform's own pages, under a number that the merchant does not know.

    Raises:
        Refused: no such trade, not paid, or more than what is left of it.
    """
    found = existing(out_trade_no)
    number = secrets.token_hex(12)
    of_stripe = f"re_{number}" if found["channel"] == "stripe" else ""
    refund(
        channel=found["channel"],
        out_trade_no=out_trade_no,
        out_refund_no=of_stripe or f"by-hand-{number}",
        amount_minor=amount_minor,
        refund_id=of_stripe,
    )
    return existing(out_trade_no)


def find_refund(out_trade_no: str, out_refund_no: str) -> sqlite3.Row | None:
    refund = "SELECT * FROM refunds WHERE out_trade_no = ? AND out_refund_no = ?"
    return state.store().row(refund, out_trade_no, out_refund_no)


def enqueue(
    connection: sqlite3.Connection,
    trade: sqlite3.Row,
    *,
    event: str,
    refund: sqlite3.Row | None = None,
    dispute: Mapping[str, Any] | None = None,
) -> None:
    """Queue the copies of one notification, in the caller's transaction.

    Args:
        event: ``paid``, ``refunded``, ``closed`` (Stripe), ``approved`` (PayPal), or the platform's own word about
            a dispute.
        refund: for ``refunded``.
        dispute: as `disputes.of`.
    """
    if not trade["notify_url"]:
        return
    notification = {
        "id": secrets.token_hex(18),
        "event": event,
        "trade": dict(trade),
        "refund": dict(refund) if refund is not None else None,
        "dispute": dispute,
        "created_at": time.time(),
    }
    due = time.time() + faults.current()["delay_ms"] / 1000
    for _ in range(faults.number("duplicates", if_true=2)):
        fate = "lost" if faults.happens(faults.current()["drop_rate"]) else "due"
        connection.execute(
            "INSERT INTO deliveries (channel, url, notification, signed_with, state, due_at) VALUES (?,?,?,?,?,?)",
            [trade["channel"], trade["notify_url"], json.dumps(notification), trade["signed_with"], fate, due],
        )


def existing(out_trade_no: str, channel: str | None = None) -> sqlite3.Row:
    """Read a trade, of any channel or this one. Raises Refused."""
    found = state.store().trade_where("out_trade_no", out_trade_no)
    if found is None or channel not in (None, found["channel"]):
        raise Refused("not_found")
    return found


def expired(trade: sqlite3.Row | Mapping[str, Any]) -> bool:
    return trade["expires_at"] is not None and trade["expires_at"] <= time.time()
