"""Prepared statements: parsed and planned once a session, which saves half of PostgreSQL's work for a small one.

A text is prepared at its fifth use, as psycopg's `prepare_threshold` has it: a connection for one request is not
worth it. Never behind a pooler, where the next transaction has another session.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg

from idempotency.postgres.pooling import is_pooled

USES = 5

# SQLSTATEs of a prepared statement that is outdated, missing, or there already
STALE = frozenset({"0A000", "26000", "42P05"})


class _Session:
    """Prepared statements of one connection.

    Attributes:
        calls: text to send in place of a statement, by its text.
        prepares: False behind a pooler and after `stop`; None: not looked yet.
    """

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self._uses = Counter[str]()
        self.prepares: bool | None = None

    def call(self, connection: psycopg.Connection[Any], sql: str) -> str:
        call = self.calls.get(sql)
        if call is not None:
            return call
        self._uses[sql] += 1
        if self._uses[sql] < USES:
            return sql
        if self.prepares is None:
            self.prepares = not is_pooled(connection)
        self.calls[sql] = _prepared(connection, sql) if self.prepares else sql
        return self.calls[sql]


_sessions = WeakKeyDictionary[psycopg.Connection[Any], _Session]()


def texts(connection: psycopg.Connection[Any], statements: Iterable[str]) -> list[str]:
    """Return the texts to send in place of statements, with the same placeholders in order.

    Args:
        connection: their destination. Preparing costs one round trip a statement, once.
        statements: texts that are the same every time; none is ever forgotten.

    Raises:
        psycopg.Error: the connection is not usable.
    """
    session = _sessions.get(connection)
    if session is None:
        session = _sessions[connection] = _Session()
    return [session.call(connection, sql) for sql in statements]


def stop(connection: psycopg.Connection[Any]) -> None:
    """Prepare nothing more on a connection that refused a prepared statement as `STALE`."""
    session = _sessions.get(connection)
    if session is not None:
        session.prepares = False
        session.calls.clear()


def _prepared(connection: psycopg.Connection[Any], sql: str) -> str:
    numbers = count(1)
    numbered = re.sub("%s|%%", lambda found: f"${next(numbers)}" if found[0] == "%s" else "%", sql)
    name = f"payonce_{hashlib.sha256(sql.encode()).hexdigest()[:16]}"
    connection.execute(f"PREPARE {name} AS {numbered}".encode())
    places = ", ".join(["%s"] * (next(numbers) - 1))
    return f"EXECUTE {name} ({places})" if places else f"EXECUTE {name}"
