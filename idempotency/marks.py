"""Marks: facts that never become untrue again, told by Redis so that a repeat needs no SQL.

A mark is only a hint. It may be missing at any time, and then the database is asked; so set one only after the
commit of the fact, and only for facts that are final (an order that is paid stays one that was paid).
"""

from dataclasses import dataclass
from typing import Any

from idempotency.fastpath import attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A kind of fact about things named by an id.

    Attributes:
        kind: part of the Redis key, e.g. ``paid``.
        ttl_seconds: how long it is kept.
    """

    kind: str
    ttl_seconds: int = 86_400

    def put(self, identifier: str, value: str) -> None:
        """The fact holds for this thing; call it after the commit."""
        attempt(lambda redis: redis.set(self._key(identifier), value.encode(), ex=self.ttl_seconds))

    def get(self, identifier: str) -> str | None:
        """What was put; None if nothing is known here, or Redis is unavailable."""
        return attempt(lambda redis: _text(redis.get(self._key(identifier))))

    def _key(self, identifier: str) -> str:
        return f"idempotency:mark:{self.kind}:{{{identifier}}}"


def _text(found: Any) -> str | None:
    """As a client gives it, that may decode what it reads; `attempt` passes over bytes that are no UTF-8."""
    return found if found is None or isinstance(found, str) else bytes(found).decode()
