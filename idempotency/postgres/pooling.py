"""Detection of a connection pooler, in front of which nothing may stay in a session."""

from typing import Any

import psycopg


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a pooler (PgBouncer) is before the server. One round trip.

    PostgreSQL reports its process id at the start; a pooler reports one of its own making. Where it pools by
    transaction, the next client gets the session that we have just used.
    """
    reported = connection.info.backend_pid
    return connection.execute("SELECT pg_backend_pid()").fetchone() != (reported,)
