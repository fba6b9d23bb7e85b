"""Session: a PostgreSQL connection that holds one advisory lock, or waits for it.

Never Django's connection, and never in a transaction longer than a statement. Nothing here blocks for the lock:
the question is sent, and the caller waits until the connection's socket can be read.
"""

import contextlib
import hashlib
import math
import selectors
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus

from idempotency.locks.engine.counted import SessionHold
from idempotency.locks.engine.holder import Holder
from idempotency.locks.engine.steps import Work
from idempotency.locks.errors import LockError, LockUnavailable
from idempotency.postgres.statements import LOCK_NOT_AVAILABLE, is_pooled, lock_timeout

CANCEL_SECONDS = 5.0
SILENCE_SECONDS = 10.0  # of a server that keeps its connections and does not reply; then a session is given up
_SILENT = f"PostgreSQL did not answer for {SILENCE_SECONDS:g} s; the lock ends when it goes on."
DEAD_PEER_SECONDS = 25  # 10 of silence, then 3 questions, one every 5

_KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": DEAD_PEER_SECONDS * 1000,
}
# Limits meant for requests must not end a session that waits, or holds and is idle. The keepalives here are the
# server's, for the end of our machine (DEAD_PEER_SECONDS). A setting that its version does not know is left out.
_SETTINGS = """
SELECT set_config(name, wanted.value, false)
FROM (VALUES
    ('lock_timeout', %s), ('statement_timeout', '0'), ('transaction_timeout', '0'), ('idle_session_timeout', '0'),
    ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '25000'), ('synchronous_commit', 'on')
) AS wanted (name, value) JOIN pg_settings USING (name)
"""
# Transaction ids only grow, and this one is given out while the lock is held: after every earlier holder's, before
# every later one's. The message makes its commit durable; else a crash could give the same id out again.
_TOKEN = "SELECT pg_current_xact_id()::text::bigint, pg_logical_emit_message(true, 'lock', '')"  # noqa: S105
# (a waiter's query is its wait; a holder is idle from when it got the lock, or else in a transaction)
_LOOK = """
SELECT granted, pid, concat(host(client_addr), '/', pid),
    CASE state WHEN 'idle' THEN state_change ELSE xact_start END,
    CASE WHEN granted AND %s THEN pg_terminate_backend(pid) END
FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = %s
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY query_start
"""


def lock_key(name: str, *, schema: str = "") -> int:
    """Compute the advisory lock of `name`: 64 bits of a hash, signed as PostgreSQL's bigint is."""
    # all schemas of a database share advisory locks: each tenant has names of its own
    whole = f"{schema}\x00{name}" if schema else name
    return int.from_bytes(hashlib.blake2b(whole.encode(), digest_size=8).digest(), "big", signed=True)


def look(key: int, parameters: dict[str, Any], *, ends_holders: bool = False) -> list[Any]:
    """Return holders and waiters of a lock: if granted, backend, name, since when, if ended."""
    with _unavailable(), psycopg.connect(**parameters) as connection:
        return connection.execute(_LOOK, [ends_holders, key]).fetchall()


class Session(SessionHold):
    """Connection of a holder for one lock. Its methods block for round trips.

    They raise `LockUnavailable` where the connection ends; nothing is known then. The token is a transaction id.
    """

    _connection: psycopg.Connection[Any]

    def __init__(
        self, name: str, mine: Holder, parameters: dict[str, Any], *, schema: str = "", **hold: Any
    ) -> None:
        super().__init__(holder=mine, **hold)
        self.backend = 0  # process of the server, as `look` names it
        self._name = name
        self._suffix = "_shared" if self.shared else ""
        self._key = lock_key(name, schema=schema)
        own = {"application_name": f"lock {name!a:.50}", "autocommit": True}
        self._parameters = _KEEPALIVES | parameters | own
        self._guard = threading.Lock()
        self._cancelled = False
        self._ends_at = math.inf  # of the wait, on `time.monotonic`

    def ask(self, wait_seconds: float | None) -> None:
        """Connect and ask for the lock without waiting. Raises `LockError` behind a pooler."""
        with _unavailable():
            self._connection = psycopg.connect(**self._parameters)
            self.backend = self._connection.info.backend_pid
            self._refuse_a_pooler()
            self._connection.execute(_SETTINGS, [lock_timeout(wait_seconds)])
            if wait_seconds is not None:  # the server counts the time, unless it hangs
                self._ends_at = min(self._ends_at, time.monotonic() + wait_seconds)
            once = self._cancelled or wait_seconds == 0
            self._send("try_advisory_lock" if once else "advisory_lock")

    def _send(self, function: str) -> None:
        server = self._connection.pgconn
        server.send_query_params(f"SELECT pg_{function}{self._suffix}($1)".encode(), [b"%d" % self._key])
        while server.flush():
            continue  # few bytes on an idle socket: they leave at once

    def _reply(self) -> Any:
        server = self._connection.pgconn
        reply = server.get_result()
        while server.get_result() is not None:
            continue  # up to its end
        return reply

    def fileno(self) -> int:
        return self._connection.pgconn.socket

    def wait(self, seconds: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def patience(self) -> float:
        """Return how long to wait before `cancel` is read again. Raises once the server is silent."""
        if (left := self._ends_at + SILENCE_SECONDS - time.monotonic()) <= 0:
            raise LockUnavailable(_SILENT)
        return min(left, SILENCE_SECONDS)

    def busy(self) -> bool:
        with _unavailable():
            self._connection.pgconn.consume_input()
            return bool(self._connection.pgconn.is_busy())

    def answer(self) -> bool:
        """Read the reply: return whether we have the lock, and read its token; if not, close."""
        with _unavailable():
            if (answer := self._reply()) is None:
                raise LockUnavailable("PostgreSQL did not answer.")
            if answer.status == ExecStatus.TUPLES_OK:
                taken = bool(answer.get_value(0, 0) != b"f")
            elif answer.error_field(DiagnosticField.SQLSTATE) == LOCK_NOT_AVAILABLE.encode() or self._cancelled:
                taken = False
            else:
                raise LockUnavailable(answer.error_message.decode(errors="replace"))
            if taken:
                row = self._connection.execute(_TOKEN).fetchone()
                self.token = row and row[0]
            else:
                self._connection.close()
            return taken

    def cancel(self) -> Work:
        """Return the step that ends the wait. Before it has begun, the lock is only tried."""
        self._cancelled, self._ends_at = True, time.monotonic()
        return Work(self._end_wait)

    def _end_wait(self) -> None:
        if (connection := getattr(self, "_connection", None)) is not None:
            with contextlib.suppress(psycopg.Error):
                connection.cancel_safe(timeout=CANCEL_SECONDS)

    def abandon(self) -> None:
        """Stop waiting or holding. Cancel a wait first: the server misses a closed connection."""
        if (connection := getattr(self, "_connection", None)) is not None:
            if connection.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self._end_wait()
            connection.close()

    def let_go(self) -> bool:
        """Unlock and close; return whether it was held up to now."""
        with self._guard:
            try:
                self._send("advisory_unlock")
                if not self.wait(SILENCE_SECONDS):
                    raise LockUnavailable(_SILENT)
                return bool((reply := self._reply()) and reply.get_value(0, 0) == b"t")
            except psycopg.Error:
                return False
            finally:
                self._connection.close()

    @property
    def ended(self) -> bool:
        """True if the connection is known to have ended, without asking the server."""
        with self._guard:
            try:
                while not self._connection.closed and self.wait(0):
                    self._connection.pgconn.consume_input()  # a notice, or the end
                ended = bool(self._connection.closed)
            except (psycopg.Error, OSError, ValueError):  # also where another thread closes it
                ended = True
        if ended and self.count:  # a release says itself how it ended
            self.over("lost")
        return ended

    lost = ended

    def _refuse_a_pooler(self) -> None:
        """Raise behind a pooler: by transaction, the next client would get our lock."""
        if is_pooled(self._connection):
            raise LockError(
                f"{self._name!r}: a connection pooler (PgBouncer?) stands before PostgreSQL. It may strand a lock "
                "of a session, or give it to two. Use transaction_lock, or a database alias that leads past it."
            )


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except (psycopg.ProgrammingError, psycopg.InternalError) as error:
        raise LockError(f"PostgreSQL refused: {error}") from error
    except psycopg.Error as error:
        raise LockUnavailable(f"PostgreSQL did not answer: {error}") from error
