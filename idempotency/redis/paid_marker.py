"""Marks: facts that never become untrue again, told by Redis so that a repeat needs no SQL.

A mark is only a hint. It may be missing at any time, and then the database is asked; so set one only after the
commit of the fact, and only for facts that are final (an order that is paid stays one that was paid).
"""

from dataclasses import dataclass
from typing import Any

from idempotency.ledger import redis_prefix
from idempotency.redis.fastpath import attempt
from idempotency.response.encryption import open_from_redis, seal_for_redis


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidMarker:
    """A kind of fact about things named by an id.

    Attributes:
        kind: part of the Redis key, e.g. ``paid``.
        ttl_seconds: how long it is kept.
    """

    kind: str
    ttl_seconds: int = 86_400

    def put(self, identifier: str, value: str) -> None:
        """The fact holds for this thing; call it after the commit."""
        name = self._key(identifier)
        sealed = seal_for_redis(value.encode(), name=name)
        attempt(lambda redis: redis.set(name, sealed, ex=self.ttl_seconds))

    def get(self, identifier: str) -> str | None:
        """What was put; None if nothing is known here, or Redis is unavailable."""
        name = self._key(identifier)
        return attempt(lambda redis: _text(redis.get(name), name=name))

    def _key(self, identifier: str) -> str:
        return f"{redis_prefix()}:mark:{self.kind}:{{{identifier}}}"


def _text(found: Any, *, name: str) -> str | None:
    """As a client gives it, that may decode what it reads; `attempt` passes over what cannot be read."""
    if found is None:
        return None
    return open_from_redis(found.encode() if isinstance(found, str) else bytes(found), name=name).decode()
