"""Store of the platforms: trades, refunds, deliveries, faults. SQLite, lasts over restarts.

One write transaction at a time (`BEGIN IMMEDIATE`), so a double click on Pay charges once here too. Times are
seconds since the epoch.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS trades (
    out_trade_no TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    transaction_id TEXT NOT NULL UNIQUE,
    prepay TEXT NOT NULL UNIQUE,
    amount_minor INTEGER NOT NULL CHECK (amount_minor > 0),
    description TEXT NOT NULL,
    notify_url TEXT NOT NULL,
    currency TEXT NOT NULL DEFAULT 'CNY',
    seller TEXT NOT NULL DEFAULT '', -- the other merchant whose account the money went to
    return_url TEXT NOT NULL DEFAULT '',
    signed_with TEXT NOT NULL DEFAULT '',
    expires_at REAL,
    state TEXT NOT NULL DEFAULT 'NOTPAY' CHECK (state IN ('NOTPAY', 'SUCCESS', 'CLOSED')),
    charged_minor INTEGER NOT NULL DEFAULT 0,
    refunded_minor INTEGER NOT NULL DEFAULT 0 CHECK (refunded_minor BETWEEN 0 AND charged_minor),
    paid_at REAL,
    created_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS refunds (
    out_refund_no TEXT NOT NULL,
    out_trade_no TEXT NOT NULL REFERENCES trades,
    refund_id TEXT NOT NULL UNIQUE,
    amount_minor INTEGER NOT NULL CHECK (amount_minor > 0),
    created_at REAL NOT NULL,
    PRIMARY KEY (out_trade_no, out_refund_no)
);
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    url TEXT NOT NULL,
    notification TEXT NOT NULL,
    signed_with TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'done', 'lost', 'given up')),
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (due_at) WHERE state = 'due';
CREATE TABLE IF NOT EXISTS objects (id TEXT PRIMARY KEY, kept TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS wechat_bills (
    token TEXT PRIMARY KEY,
    content BLOB NOT NULL,
    created_at REAL NOT NULL
);
"""


class Store:
    """File of the sandbox; every call opens a connection of its own, so any thread may call.

    Attributes:
        written: set after each write, for the thread that waits for one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.written = threading.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._connected() as connection:
            connection.executescript(_SCHEMA)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open the one write transaction; committed unless the block raises."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        self.written.set()

    def rows(self, sql: str, *parameters: Any) -> list[sqlite3.Row]:
        with self._connected() as connection:
            return connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, *parameters: Any) -> sqlite3.Row | None:
        return next(iter(self.rows(sql, *parameters)), None)

    def trade(self, channel: str, out_trade_no: str) -> sqlite3.Row | None:
        """Read the trade of this number on `channel`; None if the platform never saw it."""
        return self.row("SELECT * FROM trades WHERE channel = ? AND out_trade_no = ?", channel, out_trade_no)

    def trade_where(self, column: str, value: str) -> sqlite3.Row | None:
        """Read the trade by one of its unique columns, on any channel."""
        return self.row(f"SELECT * FROM trades WHERE {column} = ?", value)  # noqa: S608  a column of ours

    def kept_of(self, number: str) -> dict[str, Any]:
        """Read what has no column: more of an order or refund, faults, answers to repeat."""
        found = self.row("SELECT kept FROM objects WHERE id = ?", number)
        kept: dict[str, Any] = json.loads(found["kept"]) if found else {}
        return kept

    def keep(self, number: str, **kept: Any) -> None:
        """Remember more of it."""
        with self.write() as connection:
            connection.execute(
                "INSERT INTO objects VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET kept = excluded.kept",
                [number, json.dumps(self.kept_of(number) | kept)],
            )

    def first(self, number: str, **kept: Any) -> dict[str, Any]:
        """Remember it, unless something is remembered of it, and return what is."""
        with self.write() as connection:
            connection.execute("INSERT OR IGNORE INTO objects VALUES (?, ?)", [number, json.dumps(kept)])
        return self.kept_of(number)
