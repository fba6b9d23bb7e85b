"""Disputes on the platforms' side: opened, then won or lost; one of each trade.

Stripe takes the money as it opens, and returns it when it is won. PayPal takes it when it is lost.
"""

import sqlite3
import time
from typing import Any

from payments.sandbox import state
from payments.sandbox.trades import Refused, enqueue, existing

ANSWER_SECONDS = 7 * 86_400
# what each step is notified by, in this order
_EVENTS = {
    ("stripe", "open"): ("charge.dispute.created", "charge.dispute.funds_withdrawn"),
    ("stripe", "won"): ("charge.dispute.closed", "charge.dispute.funds_reinstated"),
    ("stripe", "lost"): ("charge.dispute.closed",),
    ("paypal", "open"): ("CUSTOMER.DISPUTE.CREATED",),
    ("paypal", "won"): ("CUSTOMER.DISPUTE.RESOLVED",),
    ("paypal", "lost"): ("CUSTOMER.DISPUTE.RESOLVED", "PAYMENT.CAPTURE.REVERSED"),
}
_MOVES = {("stripe", "open"): "taken_at", ("stripe", "won"): "returned_at", ("paypal", "lost"): "taken_at"}


def step(*, out_trade_no: str, status: str) -> sqlite3.Row:
    """Open a dispute of all that was charged, or end it (``won``, ``lost``); notify of it.

    Raises:
        KeyError: there is no such step, or the platform's disputes are not simulated.
        Refused: the trade is not paid, or has no open dispute to end.
    """
    trade = existing(out_trade_no)
    if trade["state"] != "SUCCESS":
        raise Refused("not_found")
    which, known = (trade["channel"], status), of(trade)
    events = _EVENTS[which]
    if (known.get("status") == "open") is (status == "open"):
        raise Refused("used")
    now = time.time()
    moves = {_MOVES[which]: now} if which in _MOVES else {}
    dispute = {"opened_at": now, **known, "status": status, "at": now, **moves}
    state.store().keep(f"dispute of {out_trade_no}", **dispute)
    with state.store().write() as connection:
        for event in events:
            enqueue(connection, trade, event=event, dispute=dispute)
    return trade


def of(trade: Any) -> dict[str, Any]:
    """Return what is known of the trade's dispute; empty if it has none."""
    return state.store().kept_of(f"dispute of {trade['out_trade_no']}")
