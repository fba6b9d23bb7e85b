"""Request log of a key: its calls, and what a refused one changed. No body, no key.

Calls write it to Redis (`idempotency.redis.arrivals`). `store` moves it into a table of its own, of which `ledger`
removes a key's lines together with its entry. Only this module inserts there.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import DataError, Error
from django.db.models import QuerySet

from idempotency.conf import config
from idempotency.models import Arrival, ArrivalOutcome, LedgerEntry
from idempotency.postgres import home
from idempotency.redis import log_lines
from idempotency.request.keys import digest_of, fault_of
from idempotency.request.outline import ROUTE, differences

log = logging.getLogger(__name__)

BATCH = 1_000
BATCHES_MAX = 100  # of a call: twice what the stream holds
KEY_MAX = 200  # lines of a key that are stored: a client in a loop fills no disk
SHOWN_MAX = 50
LOOKED_AT = 1_000  # of the newest lines in Redis, for those of a key
ENTRIES_MAX = 20

_SCOPE = re.compile(r"(?P<caller>.*?) ?(?:(?<= )(?P<method>[A-Z]+) (?P<route>\S*)|(?P<other>token|once:\S+))")
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>[^)]*\)")

_OUTCOMES = frozenset(ArrivalOutcome.values)

# several may store the same lines at once
_STORE = """
INSERT INTO idempotency_arrival (digest, line_id, at, outcome, request_id, address, outline)
SELECT digest, line_id, at, outcome, request_id, address, outline::jsonb
FROM unnest(%s::text[], %s::text[], %s::timestamptz[], %s::text[], %s::text[], %s::text[], %s::text[])
    AS line (digest, line_id, at, outcome, request_id, address, outline)
WHERE %s > (
    SELECT count(*) FROM (
        SELECT FROM idempotency_arrival AS former WHERE former.digest = line.digest LIMIT %s
    ) AS stored
)
ON CONFLICT DO NOTHING
"""

# of calls that left no entry, and of entries that were dropped before their last calls were stored
_DROP = """
DELETE FROM idempotency_arrival WHERE id IN (
    SELECT id FROM idempotency_arrival WHERE at < statement_timestamp() - %s * interval '1 second'
    ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED
)
"""


def store() -> int:
    """Move the lines in Redis into the table, in batches; return how many were read.

    Raises nothing for a table that cannot be written: the caller has more to do than the log.

    Transaction: its own, each batch; a crash between commit and removal stores nothing twice.
    """
    done = 0
    for _ in range(BATCHES_MAX):
        lines = log_lines.oldest(limit=BATCH)
        if not lines:
            break
        known = [line for line in lines if line.outcome in _OUTCOMES]  # a newer version's wait for nobody
        try:
            home.execute(_STORE, [*_columns(known), KEY_MAX, KEY_MAX])
        except DataError:  # else such a line would end every later run too
            log.exception("%d lines of the request log cannot be stored, and are dropped.", len(known))
        except Error:
            log.exception("The request log cannot be stored now. Its lines stay in Redis.")
            break
        log_lines.drop(through=lines[-1])
        done += len(lines)
        if len(lines) < BATCH:
            break
    return done


def drop_old(*, limit: int) -> int:
    """Remove up to `limit` lines older than `TOMBSTONE_SECONDS`; return the count."""
    return home.execute(_DROP, [config().tombstone_seconds, limit])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """Newest calls under one key, the newest first.

    Attributes:
        call: method and route, as `read_scope` words them; empty where no line has them.
        changes: by line id of a 422, what it changed, in words of the active language.
        is_current: Redis was asked for the calls that are not stored yet.
    """

    lines: Sequence[Arrival]
    call: str
    changes: Mapping[str, Sequence[str]]
    is_current: bool


def log_of(*, scope: str, key: str) -> RequestLog:
    digest = digest_of(scope=scope, key=key)
    held = log_lines.newest(limit=LOOKED_AT, digest=digest)
    found = {line.line_id: line for line in held or () if line.outcome in _OUTCOMES}
    rows = Arrival.objects.using(home.alias()).filter(digest=digest)
    found |= {row.line_id: row for row in rows.order_by("-at", "-id")[:SHOWN_MAX]}
    lines = sorted(found.values(), key=lambda line: line.at, reverse=True)
    reused = [line for line in lines[:SHOWN_MAX] if line.outcome == ArrivalOutcome.REUSED]
    first = _first_outline(lines, rows) if lines else {}
    return RequestLog(
        lines=lines[:SHOWN_MAX],
        call=_call(*first[ROUTE].split(" ", 1)) if ROUTE in first else "",
        changes={line.line_id: differences(first, line.outline) for line in reused},
        is_current=held is not None,
    )


def entries_of(*, principal: str, key: str) -> list[LedgerEntry]:
    """List a caller's own entries of a key, one a route, the newest first."""
    if fault_of(key):  # PostgreSQL would not take every text
        return []
    own = LedgerEntry.objects.using(home.alias()).filter(key=key, scope__startswith=f"{principal} ")
    found = own.defer("response_body", "fingerprint", "recovery_data").order_by("-pk")[:ENTRIES_MAX]
    return [entry for entry in found if read_scope(entry.scope)[0] == principal]  # other names may begin alike


def read_scope(scope: str) -> tuple[str, str]:
    """Split a scope into its caller and the call, such as ``POST /orders/{order_id}/cancel``."""
    found = _SCOPE.fullmatch(scope)
    if found is None:
        return "", scope
    if found["route"] is None:
        return found["caller"].removeprefix("by:"), found["other"]
    return found["caller"], _call(found["method"], found["route"])


def _call(method: str, route: str) -> str:
    """Word a method and a pattern, as ``POST /orders/{order_id}/cancel``."""
    path = _PARAMETER.sub(lambda part: f"{{{part[1] or part[2]}}}", route).strip("^$")
    return f"{method} /{path.removeprefix('/')}"


def _first_outline(lines: Sequence[Arrival], rows: QuerySet[Arrival]) -> Mapping[str, str]:
    """Return the outline of the call that the key belongs to; empty where its line was lost."""
    for line in lines:
        if line.outline and line.outcome != ArrivalOutcome.REUSED:
            return dict(line.outline)
    row = rows.exclude(outline={}).exclude(outcome=ArrivalOutcome.REUSED).first()
    return {} if row is None else dict(row.outline)


def _columns(lines: Sequence[Arrival]) -> list[list[object]]:
    names = ("digest", "line_id", "at", "outcome", "request_id", "address")
    outlines: list[object] = [json.dumps(line.outline) for line in lines]
    return [*([getattr(line, name) for line in lines] for name in names), outlines]
