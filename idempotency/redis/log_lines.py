"""Lines of the log that `redis.arrivals` writes, as unsaved rows of the table they move to."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils.encoding import force_str

from idempotency.ledger import redis_prefix
from idempotency.models import Arrival
from idempotency.redis.arrivals import stream_of
from idempotency.redis.fastpath import attempt


def oldest(*, limit: int) -> list[Arrival] | None:
    name = stream_of(redis_prefix())
    return attempt(lambda redis: [_read(*line) for line in redis.xrange(name, count=limit)])


def newest(*, limit: int, digest: str | None = None) -> list[Arrival] | None:
    """Return the last lines, of a key's `digest` or all, the newest first; None without Redis."""
    name = stream_of(redis_prefix())
    wanted = {digest, digest and digest.encode()}  # compared as they came: most are another key's

    def ask(redis: Any) -> list[Arrival]:
        return [
            _read(at, fields)
            for at, fields in redis.xrevrange(name, count=limit)
            if digest is None or fields.get(b"digest", fields.get("digest")) in wanted
        ]

    return attempt(ask)


def drop(*, through: Arrival) -> None:
    name = stream_of(redis_prefix())
    milliseconds, _, number = through.line_id.partition("-")
    attempt(lambda redis: redis.xtrim(name, minid=f"{milliseconds}-{int(number) + 1}", approximate=False))


def _read(line_id: Any, fields: Mapping[Any, Any]) -> Arrival:
    """Read a line, decoded by the client or not. A line of another version has no outcome."""
    zone = UTC if settings.USE_TZ else None  # as the table's: both are sorted together
    try:
        found = {force_str(name): force_str(value) for name, value in fields.items()}
        return Arrival(
            line_id=force_str(line_id),
            at=datetime.fromtimestamp(float(found["at"]), zone),
            digest=found["digest"],
            outcome=found["outcome"],
            request_id=found["request"],
            address=found["address"],
            outline=dict(json.loads(found.get("outline", "{}"))),
        )
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return Arrival(line_id=force_str(line_id), at=datetime.fromtimestamp(0, zone))
