"""Plans that a session keeps: a statement by hand is parsed and planned a few times a connection, then only run.

That is half of PostgreSQL's work for a small statement. It is not done before the fifth use, as psycopg's own
`prepare_threshold` would have it, because a connection for one request is not worth it; and never behind a pooler,
where the session is another one in the next transaction and does not know the plan.
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

# of a plan that a change of its table's types has made useless, that is not there, or that is there already
STALE = frozenset({"0A000", "26000", "42P05"})


class _Session:
    """What one connection has prepared.

    Attributes:
        calls: what to send in place of a statement, by its text.
        keeps: whether it keeps plans at all; None: nobody has looked yet.
    """

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self._uses = Counter[str]()
        self.keeps: bool | None = None

    def call(self, connection: psycopg.Connection[Any], sql: str) -> str:
        known = self.calls.get(sql)
        if known is not None:
            return known
        self._uses[sql] += 1
        if self._uses[sql] < USES:
            return sql
        if self.keeps is None:
            self.keeps = not is_pooled(connection)
        self.calls[sql] = _prepared(connection, sql) if self.keeps else sql
        return self.calls[sql]


_sessions = WeakKeyDictionary[psycopg.Connection[Any], _Session]()


def texts(connection: psycopg.Connection[Any], statements: Iterable[str]) -> list[str]:
    """What to send in place of the statements, with the same placeholders in the same order.

    Args:
        connection: the one that they go to. Preparing is a round trip a statement, once.
        statements: texts that are the same every time; nothing forgets one.

    Raises:
        psycopg.Error: the connection is not usable.
    """
    session = _sessions.get(connection)
    if session is None:
        session = _sessions[connection] = _Session()
    return [session.call(connection, sql) for sql in statements]


def stop(connection: psycopg.Connection[Any]) -> None:
    """Keep no more plans in its session: one of them was no good (`STALE`)."""
    session = _sessions.get(connection)
    if session is not None:
        session.keeps = False
        session.calls.clear()


def _prepared(connection: psycopg.Connection[Any], sql: str) -> str:
    numbers = count(1)
    numbered = re.sub("%s|%%", lambda found: f"${next(numbers)}" if found[0] == "%s" else "%", sql)
    name = f"payonce_{hashlib.sha256(sql.encode()).hexdigest()[:16]}"
    connection.execute(f"PREPARE {name} AS {numbered}".encode())
    places = ", ".join(["%s"] * (next(numbers) - 1))
    return f"EXECUTE {name} ({places})" if places else f"EXECUTE {name}"
