"""Queue of notifications, written in the transaction of the charge or refund."""

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from payments.sandbox import faults


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
        event: ``paid``, ``refunded``, (Stripe) ``closed``, or the platform's own word about a dispute.
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
    for _ in range(faults.copies()):
        fate = "lost" if faults.happens(faults.current()["drop_rate"]) else "due"
        connection.execute(
            "INSERT INTO deliveries (channel, url, notification, signed_with, state, due_at) VALUES (?,?,?,?,?,?)",
            [trade["channel"], trade["notify_url"], json.dumps(notification), trade["signed_with"], fate, due],
        )
