"""Entries of atomic calls: they commit or roll back with the caller's transaction.

The finished row with its answer is the last statement before the commit, and sent together with it (`record`). The
unique constraint on (key, scope) decides: a duplicate that comes to the same point waits at the index for that
commit, and loses.

The marker (`idempotency.redis.marker`) keeps duplicates from running at all. Where Redis is away, an advisory
lock of the transaction does (`hold`): tried, not waited for, and gone with its process.
"""

import json
from typing import Any

from django.db import IntegrityError, OperationalError

from idempotency.conf import config
from idempotency.ledger import queries
from idempotency.ledger.identity import DuplicateRunning, Found, Identity
from idempotency.ledger.reading import found_in
from idempotency.names import schema
from idempotency.postgres import home
from idempotency.postgres.statements import Statement, broken_constraint, send
from idempotency.request.keys import lock_id_of
from idempotency.response.answers import StoredResponse

LOCK_NOT_AVAILABLE = "55P03"
UNIQUE = "ledger_one_entry_per_scope_and_key"


def hold(identity: Identity) -> Found | bool:
    """Hold duplicates off until the end of the open transaction, unless the key is answered already.

    Returns:
        The committed entry of the key; else True if we hold the key now, False if a duplicate does.
    """
    # the entry is looked up after the lock, by a younger snapshot: a duplicate that has just committed is seen
    ((held,),), entries = send(
        Statement(queries.TRY_LOCK, [lock_id_of(identity.digest, schema=schema())], rows=1),
        Statement(queries.FIND, [config().body_seconds, identity.scope, identity.key]),
        using=home.alias(),
    )
    return found_in(entries[0]) if entries else bool(held)


def await_duplicate(identity: Identity, *, wait_seconds: float) -> None:
    """Wait until the duplicate that holds the key has ended. Needs a transaction of its own.

    Raises:
        DuplicateRunning: it did not end within `wait_seconds`; the transaction is unusable.
    """
    milliseconds = max(1, round(wait_seconds * 1000))
    with home.connection().cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{milliseconds}ms"])
        try:
            cursor.execute(queries.LOCK, [lock_id_of(identity.digest, schema=schema())])
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) == LOCK_NOT_AVAILABLE:
                raise DuplicateRunning from error
            raise


def record(identity: Identity, answer: StoredResponse, *, subject: str) -> bool:
    """Insert the finished entry of an atomic call, last in the open transaction or as its own.

    A plain transaction is committed in the same round trip.

    Returns:
        False if the key is taken: nothing was committed, the transaction, if there is one, is unusable, and the
        caller must roll it back and replay the winner.
    """
    try:
        send(
            Statement(queries.RECORD, _values(identity, answer, subject), rows=1, certain=True),
            commit=True,
            using=home.alias(),
        )
    except IntegrityError as error:
        if broken_constraint(error) == UNIQUE:
            return False
        raise
    return True


def record_if_new(identity: Identity, answer: StoredResponse, *, subject: str) -> bool:
    """Insert the finished entry of a call without a claim; wait for a duplicate that is inserting.

    Returns:
        False if the key is taken: nothing was inserted.
    """
    (inserted,) = send(Statement(queries.RECORD_IF_NEW, _values(identity, answer, subject)), using=home.alias())
    return bool(inserted)


def _values(identity: Identity, answer: StoredResponse, subject: str) -> list[Any]:
    who = (identity.scope, identity.key, identity.fingerprint, identity.owner, identity.request_id)
    return [*who, subject, answer.status, json.dumps(answer.headers), answer.body, answer.body_key_id]
