"""Detection of database outages, after which a request may be sent again.

The outcome of this one is unknown: a provider may have been called before, and a connection that is lost during
COMMIT may have committed.

A lost connection is an `OperationalError`, an `InterfaceError`, or a bare `DatabaseError` without a code. A server
that has failed over, or that its operator stopped for a full disk, replies but refuses writes, and psycopg counts
that among internal errors, as it does a session that the server ended for a transaction that was idle or long.
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

# transactions that PostgreSQL ended for the sake of others: run again, they may commit
# source: PostgreSQL 17, appendix A, "Error codes"; section 13.5, "Serialization Failure Handling" (September 2024)
_CONFLICTS = {"40001": "serialization", "40P01": "deadlock"}

# reasons to take no writes, which a server reports unasked; source: PostgreSQL 17, "PQparameterStatus" (since 14)
_REASONS = ("in_hot_standby", "default_transaction_read_only")

# faults of the statement itself, which every server would report
_OF_THE_STATEMENT = (IntegrityError, DataError, ProgrammingError, NotSupportedError)


def database_is_away(error: BaseException | None) -> bool:
    """Return whether an error of Django is of a database that cannot be written to now.

    Connections to servers that take no writes are closed, since the next ones may lead to other servers.
    """
    if isinstance(error, (OperationalError, InterfaceError)):
        return True
    if isinstance(error, TransactionManagementError) and error.__cause__ is not None:
        return database_is_away(error.__cause__)  # Django stops after an error that was swallowed
    if not isinstance(error, DatabaseError):
        cause = _wrapped(error)
        return cause is not None and database_is_away(cause)
    if isinstance(error, _OF_THE_STATEMENT):
        return False
    opened = connections.all(initialized_only=True)
    if getattr(error.__cause__, "sqlstate", None) == READ_ONLY:
        for each in opened:
            if _is_lost(each) or _takes_no_writes(each):
                each.close()
        return True
    return _ended_its_session(error) or any(_is_lost(each) for each in opened)


def outage(error: BaseException | None) -> Problem | None:
    """Return the 503 for an outage, and log its reason; None for any other error."""
    if not database_is_away(error):
        return None
    log.warning("The database is away: %s: %s", type(error).__name__, str(error).partition("\n")[0])
    return service_unavailable()


def _wrapped(error: BaseException | None) -> Error | None:
    """Return Django's error that a library wrapped, as Procrastinate wraps the driver's."""
    cause = error.__cause__ if error else None
    chain = [cause, cause.__context__] if cause else []
    return next((one for one in chain if isinstance(one, Error)), None)


def _ended_its_session(error: DatabaseError) -> bool:
    severity = getattr(getattr(error.__cause__, "diag", None), "severity_nonlocalized", None)
    return severity in {"FATAL", "PANIC"}


def _is_lost(each: BaseDatabaseWrapper) -> bool:
    return each.closed_in_transaction or getattr(each.connection, "closed", False)


def _takes_no_writes(each: BaseDatabaseWrapper) -> bool:
    """Return whether the server is read-only; one that does not report it counts as such."""
    if each.vendor != "postgresql" or each.connection is None:
        return False
    return {each.connection.info.parameter_status(name) for name in _REASONS} != {"off"}


def conflict(error: BaseException | None) -> str:
    """Name the conflict that an error, or what caused it, reports; empty for any other error."""
    while error is not None:
        if found := _CONFLICTS.get(getattr(error, "sqlstate", None) or ""):
            return found
        error = error.__cause__
    return ""
