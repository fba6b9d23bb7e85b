"""Claims of atomic calls: the marker's epoch, and the entry that commits with the call.

The finished row with its answer is the last statement before the commit, and sent together with it (`record`). The
unique constraint on (key, scope) decides: a duplicate waits at the index for that commit, and loses. The marker
(`idempotency.redis.marker`) keeps duplicates from running at all; where Redis is away, an advisory lock of the
transaction does (`hold`): tried, not waited for, and gone with its process.

The epoch, one a schema, is a random word in each name in Redis that answers for effects. A database that goes back
to a backup has lost effects whose answers Redis still has: `manage.py idempotency forget-redis` gives the ledger
another epoch. A process reads it every `EPOCH_SECONDS`, and may believe old names that long; without an answer of
the database it believes nothing: the read raises. A test suite uses epochs of its own (`idempotency.testing`).
"""

import json
import time
from functools import lru_cache
from uuid import uuid4

from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, OperationalError, connections, transaction

from idempotency.conf import config
from idempotency.ledger import queries
from idempotency.ledger.identity import Entry, Identity
from idempotency.ledger.reading import entry_in
from idempotency.names import fixed_prefix, prefix, schema
from idempotency.postgres import home
from idempotency.postgres.statements import LOCK_NOT_AVAILABLE, Statement, broken_constraint, lock_timeout, send
from idempotency.request.keys import lock_id_of
from idempotency.response.answers import StoredResponse

UNIQUE = "ledger_one_entry_per_scope_and_key"
EPOCH_SECONDS = 10.0

# by prefix: when its epoch was read, by the monotonic clock, and the prefix with it
_epochs: dict[str, tuple[float, str]] = {}

_local_epoch: str | None = None  # in place of the database's


def redis_prefix() -> str:
    """Build the prefix of names in Redis that answer for effects in this database and schema.

    Raises:
        django.db.Error: the epoch had to be read and the database did not answer.
        ImproperlyConfigured: see `refuse_ledger_of_another`.
    """
    settings = config()
    database, now = connections[settings.database], time.monotonic()
    schema_name = getattr(database, "schema_name", None) or ""
    # as `prefix` does, which would cost each call one more module
    base = fixed_prefix(settings, database.settings_dict["NAME"], schema_name) or prefix()
    known = _epochs.get(base)
    if known is None or now - known[0] >= EPOCH_SECONDS:
        known = _epochs[base] = now, f"{base}:{_epoch()}"
    return known[1]


@lru_cache(maxsize=4096)
def refuse_ledger_of_another(own: str) -> None:
    """Raise ImproperlyConfigured for a schema without a ledger, though one is on the path."""
    if not own:
        return
    found = home.row(queries.SCHEMA_OF_LEDGER)
    if found is None or found[0] != own:
        raise ImproperlyConfigured(
            f"The schema {own!r} has no ledger of its own: tenants would get each other's answers. Put "
            "'idempotency' in TENANT_APPS, and run manage.py migrate_schemas for all tenants."
        )


def renew_epoch() -> str:
    """Give the ledger another epoch, valid in this process at once, and return it."""
    value = uuid4().hex
    home.execute(queries.RENEW_EPOCH, [value])
    if _local_epoch is not None:
        use_local_epoch(value)
    _epochs.pop(prefix(), None)
    return value


def use_local_epoch(value: str | None) -> str | None:
    """Set the epoch of this process, None for the database's. Return the former one."""
    global _local_epoch
    former, _local_epoch = _local_epoch, value
    _epochs.clear()
    return former


def _epoch() -> str:
    if _local_epoch is not None:
        return _local_epoch
    refuse_ledger_of_another(schema())
    row = home.row(queries.READ_EPOCH)
    return row[0] if row else renew_epoch()  # `flush` has emptied the table, and with it all effects


def hold(identity: Identity) -> Entry | bool:
    """Hold duplicates off until the transaction ends, unless the key is answered already.

    Returns:
        The committed entry of the key; else True if we hold the key now, False if a duplicate does.
    """
    own = schema()
    refuse_ledger_of_another(own)
    # the entry is looked up after the lock, by a younger snapshot: a duplicate that has just committed is seen
    ((held,),), entries = send(
        Statement(queries.TRY_LOCK, [lock_id_of(identity.digest, schema=own)], rows=1),
        Statement(queries.FIND, [config().body_seconds, identity.scope, identity.key]),
        using=config().database,
    )
    return entry_in(entries[0]) if entries else bool(held)


def await_duplicate(identity: Identity, *, wait_seconds: float) -> bool:
    """Wait, in a transaction of its own, for the duplicate with the key. False: it still runs."""
    try:
        with transaction.atomic(home.alias(), durable=True):
            home.execute(queries.WAIT_AT_MOST, [lock_timeout(wait_seconds)])
            home.execute(queries.LOCK, [lock_id_of(identity.digest, schema=schema())])
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def record(identity: Identity, answer: StoredResponse, *, subject: str) -> bool:
    """Insert the finished entry of an atomic call, last in the open transaction or as its own.

    A plain transaction is committed in the same round trip.

    Returns:
        False if the key is taken: nothing was committed, the transaction, if there is one, is unusable, and the
        caller must roll it back and replay the winner.
    """
    who = (identity.scope, identity.key, identity.fingerprint, identity.owner, identity.request_id)
    what = (subject, answer.status, json.dumps(answer.headers), answer.body, answer.body_key_id)
    statement = Statement(queries.RECORD, [*who, *what], rows=1, certain=True)
    try:
        send(statement, commit=True, using=config().database)
    except IntegrityError as error:
        if broken_constraint(error) == UNIQUE:
            return False
        raise
    return True
