"""Paid markers: final facts stored in Redis, so that a repeat needs no SQL.

A marker is only a hint: it may be missing, or not signed with our ``SECRET_KEY``, and then the database is asked.
Set one only after the commit of the fact, and only for facts that stay true (a paid order was paid for good).
"""

from dataclasses import dataclass
from typing import Any

from django.core.signing import BadSignature, Signer

from idempotency.ledger import redis_prefix
from idempotency.redis.fastpath import attempt
from idempotency.response.encryption import open_from_redis, seal_for_redis


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidMarker:
    """A kind of final fact about things named by an id.

    Attributes:
        kind: part of the Redis key, e.g. ``order-paid``.
        ttl_seconds: how long it is stored.
    """

    kind: str
    ttl_seconds: int = 86_400

    def put(self, identifier: str, value: str) -> None:
        """Store the fact; call it after the commit."""
        name = self._key(identifier)
        sealed = seal_for_redis(_signer(name).sign(value).encode(), name=name)
        attempt(lambda redis: redis.set(name, sealed, ex=self.ttl_seconds))

    def get(self, identifier: str) -> str | None:
        """Return the stored value; None if there is none, or Redis is unavailable."""
        name = self._key(identifier)
        return attempt(lambda redis: _text(redis.get(name), name=name))

    def _key(self, identifier: str) -> str:
        return f"{redis_prefix()}:mark:{self.kind}:{{{identifier}}}"


def _text(found: Any, *, name: str) -> str | None:
    """Decode a value, decoded by the client or not. `attempt` skips unreadable ones."""
    if found is None:
        return None
    opened = open_from_redis(found.encode() if isinstance(found, str) else bytes(found), name=name)
    try:
        return _signer(name).unsign(opened.decode())
    except BadSignature as error:
        raise ValueError("a mark that we did not put") from error


def _signer(name: str) -> Signer:
    """Return what proves that we put a mark, under this name."""
    return Signer(salt=f"idempotency.mark.{name}")
