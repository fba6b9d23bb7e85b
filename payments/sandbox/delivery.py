"""Notifications on their way: queued with the charge, sent until acknowledged, misbehaving as told.

Every copy carries the same notification id; each is signed (and for WeChat encrypted) anew when it is sent, as
the platforms do. Acknowledged is any 2xx for WeChat and the body ``success`` for Alipay.
"""

import json
import secrets
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from payments.sandbox import faults, state

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 60, 120, 300, 600)
IDLE_SECONDS = 0.02
BATCH = 200


def enqueue(
    connection: sqlite3.Connection, trade: sqlite3.Row, *, event: str, refund: sqlite3.Row | None = None
) -> None:
    """Queue the copies of one notification in the transaction of what it tells.

    Args:
        event: ``paid`` or ``refunded``.
        refund: for ``refunded``.
    """
    notification = {
        "id": secrets.token_hex(18),
        "event": event,
        "trade": dict(trade),
        "refund": dict(refund) if refund is not None else None,
        "created_at": time.time(),
    }
    due = time.time() + faults.current()["delay_ms"] / 1000
    for _ in range(faults.copies()):
        lost = faults.happens(faults.current()["drop_rate"])
        connection.execute(
            "INSERT INTO deliveries (channel, url, notification, signed_with, state, due_at) VALUES (?,?,?,?,?,?)",
            [
                trade["channel"],
                trade["notify_url"],
                json.dumps(notification),
                trade["signed_with"],
                "lost" if lost else "due",
                due,
            ],
        )


def start() -> None:
    """Send from a background thread for the rest of the process's life."""
    threading.Thread(target=_run, name="delivery", daemon=True).start()


def _run() -> None:
    with httpx.Client(timeout=10, trust_env=False) as client, ThreadPoolExecutor(max_workers=64) as pool:
        while True:
            due = state.store().rows(
                "SELECT * FROM deliveries WHERE state = 'due' AND due_at <= ? ORDER BY due_at, id LIMIT ?",
                time.time(),
                BATCH,
            )
            if not due:
                time.sleep(IDLE_SECONDS)
                continue
            if faults.current()["reorder"]:
                faults.dice.shuffle(due)
            senders = faults.senders()
            for start_at in range(0, len(due), senders):
                list(pool.map(lambda row: _send(client, row), due[start_at : start_at + senders]))


def _send(client: httpx.Client, row: sqlite3.Row) -> None:
    # here, because both modules also queue through this one
    from payments.sandbox import alipay, wechat  # noqa: PLC0415

    notification: dict[str, Any] = json.loads(row["notification"])
    try:
        if row["channel"] == "wechat":
            headers, body = wechat.notification(notification, signed_with=row["signed_with"])
            acknowledged = client.post(row["url"], content=body, headers=headers).is_success
        else:
            answer = client.post(row["url"], data=alipay.notification(notification))
            acknowledged = answer.text == "success"
    except httpx.HTTPError:
        acknowledged = False
    attempts = row["attempts"] + 1
    if acknowledged:
        outcome, due = "done", row["due_at"]
    elif attempts > len(RETRY_SECONDS):
        outcome, due = "given up", row["due_at"]
    else:
        outcome, due = "due", time.time() + RETRY_SECONDS[attempts - 1]
    with state.store().write() as connection:
        connection.execute(
            "UPDATE deliveries SET state = ?, attempts = ?, due_at = ? WHERE id = ?",
            [outcome, attempts, due, row["id"]],
        )
