"""Whether a pooler stands between us and PostgreSQL; what belongs to a session is then not ours to keep."""

from typing import Any

import psycopg


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether it leads to a pooler (PgBouncer). One round trip.

    PostgreSQL tells its process id at the start. A pooler tells one of its own making: it has many clients on few
    connections. Where it pools by transaction, the next client gets the session that we have just used.
    """
    told = connection.info.backend_pid
    return connection.execute("SELECT pg_backend_pid()").fetchone() != (told,)
