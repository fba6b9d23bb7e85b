"""Whether an error means that the database is away: then the same request may come again, and is done once.

What became of this one nobody knows here: a provider may have been called before the database was lost, and a
connection that is lost during COMMIT may have committed.

It has many names. A lost connection is an `OperationalError`, an `InterfaceError`, or a bare `DatabaseError` where
the server's last words had no code; a server that another one has taken over from, or whose disk is full for its
operator, answers but refuses to write, and PostgreSQL counts that among its internal errors.
"""

import logging

from django.db import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    connections,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from idempotency.errors import Problem, service_unavailable

log = logging.getLogger("idempotency")

READ_ONLY = "25006"  # read_only_sql_transaction; source: PostgreSQL 17, appendix A, "Error codes"

# why a server takes no writes, which it reports unasked; source: PostgreSQL 17, "PQparameterStatus" (since 14)
_REASONS = ("in_hot_standby", "default_transaction_read_only")

# what a statement says or breaks, which it would at every server
_OF_THE_STATEMENT = (IntegrityError, DataError, ProgrammingError, NotSupportedError)


def database_is_away(error: BaseException | None) -> bool:
    """Whether this error, as Django raises it, is of a database that cannot be written to now.

    Connections to servers that take no writes are closed, since the next ones may lead to other servers.
    """
    if isinstance(error, (OperationalError, InterfaceError)):
        return True
    if isinstance(error, TransactionManagementError) and error.__cause__ is not None:
        return database_is_away(error.__cause__)  # after that one, which somebody swallowed, Django does not go on
    if not isinstance(error, DatabaseError):
        met = _named_otherwise(error)
        return met is not None and database_is_away(met)
    if isinstance(error, _OF_THE_STATEMENT):
        return False
    opened = connections.all(initialized_only=True)
    if getattr(error.__cause__, "sqlstate", None) == READ_ONLY:
        for each in opened:
            if _is_lost(each) or _takes_no_writes(each):
                each.close()
        return True
    return any(_is_lost(each) for each in opened)


def outage(error: BaseException | None) -> Problem | None:
    """The 503 for an error of a database that is away, its reason told in the log; None for any other error."""
    if not database_is_away(error):
        return None
    log.warning("The database is away: %s: %s", type(error).__name__, str(error).partition("\n")[0])
    return service_unavailable()


def _named_otherwise(error: BaseException | None) -> Error | None:
    """Django's error that a library made one of its own of; procrastinate does by way of the driver's."""
    cause = error.__cause__ if error else None
    chain = [cause, cause.__context__] if cause else []
    return next((one for one in chain if isinstance(one, Error)), None)


def _is_lost(each: BaseDatabaseWrapper) -> bool:
    return each.closed_in_transaction or getattr(each.connection, "closed", False)


def _takes_no_writes(each: BaseDatabaseWrapper) -> bool:
    """Whether its server is one; where a proxy or an old server does not report it, it is taken for one."""
    if each.vendor != "postgresql" or each.connection is None:
        return False
    return {each.connection.info.parameter_status(name) for name in _REASONS} != {"off"}
