"""Delivery of queued notifications (`trades.enqueue`) until acknowledged, under faults.

All copies carry the same notification id; each is signed (and for WeChat encrypted) when it is sent, as the
platforms do. Acknowledged is any 2xx, and the body ``success`` for Alipay.
"""

import json
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from idempotency.observability.background import Worker
from payments.sandbox import faults, state
from payments.sandbox.alipay import gateway
from payments.sandbox.paypal import documents as paypal_documents
from payments.sandbox.stripe import documents as stripe_documents
from payments.sandbox.wechat import api as wechat_api

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 60, 120, 300, 600)
STATES = ("due", "done", "lost", "given up")
BATCH = 200
# headers and body of one copy, signed now
NOTIFICATIONS: dict[str, Callable[[dict[str, Any]], tuple[dict[str, str], bytes]]] = {
    "wechat": wechat_api.notification,
    "alipay": gateway.notification,
    "paypal": paypal_documents.notification,
    "stripe": stripe_documents.notification,
}


def start() -> None:
    """Send from a background thread for the rest of the process's life."""
    Worker("delivery", _run, wake=state.store().written.set).start()


def counts() -> dict[str, int]:
    """Count copies of notifications by state; one that is just being sent is still due."""
    found = state.store().rows("SELECT state, count(*) AS copies FROM deliveries GROUP BY state")
    return dict.fromkeys(STATES, 0) | {row["state"]: row["copies"] for row in found}


def _run(worker: Worker) -> None:
    store = state.store()
    limits = httpx.Limits(max_keepalive_connections=None)  # beyond it, httpcore 1.0 closes some that are in use
    with (
        httpx.Client(timeout=10, trust_env=False, limits=limits) as client,
        ThreadPoolExecutor(max_workers=64) as pool,
    ):
        while True:
            store.written.clear()  # before it looks: what is queued from now on wakes it, and so does `stop`
            if worker.stopping.is_set():
                return
            due = store.rows(
                "SELECT * FROM deliveries WHERE state = 'due' AND due_at <= ? ORDER BY due_at, id LIMIT ?",
                time.time(),
                BATCH,
            )
            if not due:
                store.written.wait(_seconds_to_next())
                continue
            if faults.current()["reorder"]:
                faults.reorder_dice.shuffle(due)
            senders = faults.number("parallel", if_true=16)
            for start_at in range(0, len(due), senders):
                list(pool.map(lambda row: _send(client, row), due[start_at : start_at + senders]))


def _seconds_to_next() -> float | None:
    """Return the time until one is due; None while nothing is queued."""
    (found,) = state.store().rows("SELECT min(due_at) AS at FROM deliveries WHERE state = 'due'")
    return None if found["at"] is None else max(0.0, float(found["at"]) - time.time())


def _send(client: httpx.Client, row: sqlite3.Row) -> None:
    headers, body = NOTIFICATIONS[row["channel"]](json.loads(row["notification"]))
    try:
        answer = client.post(row["url"], content=body, headers=headers)
        acknowledged = answer.text == "success" if row["channel"] == "alipay" else answer.is_success
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
