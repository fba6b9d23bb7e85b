"""Whether an error means that the database is away: then nothing was done, and the same request may come again.

It has many names. A lost connection is an `OperationalError`, an `InterfaceError`, or a bare `DatabaseError` where
the server's last words had no code; a server that another one has taken over from, or whose disk is full for its
operator, answers but refuses to write, and PostgreSQL counts that among its internal errors.
"""

from django.db import DatabaseError, InterfaceError, OperationalError, connections

READ_ONLY = "25006"  # read_only_sql_transaction; source: PostgreSQL 17, appendix A, "Error codes"


def database_is_away(error: BaseException | None) -> bool:
    """Whether this error, as Django raises it, is of a database that cannot be written to now.

    A connection to a server that takes no writes is closed, since the next one may lead to another server.
    """
    if isinstance(error, (OperationalError, InterfaceError)):
        return True
    if not isinstance(error, DatabaseError):
        return False
    if getattr(error.__cause__, "sqlstate", None) == READ_ONLY:
        connections.close_all()
        return True
    return any(
        each.closed_in_transaction or getattr(each.connection, "closed", False)
        for each in connections.all(initialized_only=True)
    )
