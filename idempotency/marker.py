"""The Redis marker in front of the ledger: holds off a running call's twins, and replays finished answers.

It never decides. Flushed, paused, stopped, lagging or lying, the worst it can do is to let a twin run as far as
the unique constraint of the ledger. Every function answers within the client's time-outs; after a failure the
breaker keeps the process away from Redis for a moment, and the caller works on the ledger alone.

Values: ``R<fingerprint hex>:<owner>`` while running, ``F<json>`` when finished. Keys carry a hash tag, so that a
script's keys always live in one slot of a Redis Cluster.
"""

import base64
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, TypeVar

from django_redis import get_redis_connection
from redis.exceptions import RedisError

from idempotency.breaker import Breaker
from idempotency.conf import config
from idempotency.response import StoredResponse

log = logging.getLogger(__name__)

breaker = Breaker()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claimed:
    """The marker is ours; `value` releases it."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Running:
    """A twin is running, with this fingerprint."""

    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is known, made for this fingerprint."""

    fingerprint: bytes
    answer: StoredResponse


Found = Claimed | Running | Finished


def claim(digest: str, *, fingerprint: bytes, owner: str, ttl_seconds: float) -> Found | None:
    """`SET key value NX PX ttl`, and what is there instead if it exists.

    Returns:
        None if Redis is unavailable, or the marker vanished between the two commands: ask the ledger.
    """
    value = b"R" + fingerprint.hex().encode() + b":" + owner.encode()

    def ask(redis: Any) -> Found | None:
        if redis.set(_key(digest), value, nx=True, px=round(ttl_seconds * 1000)):
            return Claimed(value)
        return _read(redis.get(_key(digest)))

    return _try(ask)


def look(digest: str) -> Running | Finished | None:
    """What stands at the marker; None if nothing, or Redis is unavailable."""
    return _try(lambda redis: _read(redis.get(_key(digest))))


def finish(digest: str, *, fingerprint: bytes, answer: StoredResponse) -> None:
    """Let replays be answered from here. Only after the answer has been committed to the ledger.

    Written over whatever stands there: the ledger has decided, so a twin's running marker is stale.
    """
    if answer.body is None:
        value: dict[str, Any] = {}
    else:
        value = {"body": base64.b64encode(answer.body).decode()}
    value |= {"fingerprint": fingerprint.hex(), "status": answer.status, "headers": answer.headers}
    encoded = b"F" + json.dumps(value, separators=(",", ":")).encode()
    _try(lambda redis: redis.set(_key(digest), encoded, px=round(config().result_seconds * 1000)))


def release(digest: str, claimed: Claimed) -> None:
    """Compare-and-delete: let the same key try again at once."""
    _try(lambda redis: redis.eval(_release_script(), 1, _key(digest), claimed.value))


def ping() -> bool:
    """Whether Redis answers."""
    return _try(lambda redis: bool(redis.ping())) is True


def _key(digest: str) -> str:
    return f"idempotency:{{{digest}}}"


@lru_cache(maxsize=1)
def _release_script() -> str:
    return resources.files("idempotency").joinpath("scripts/release.lua").read_text()


def _read(value: bytes | None) -> Running | Finished | None:
    if value is None:
        return None
    if value[:1] == b"R":
        return Running(bytes.fromhex(value[1:].split(b":", 1)[0].decode()))
    kept = json.loads(value[1:])
    body = base64.b64decode(kept["body"]) if "body" in kept else None
    answer = StoredResponse(status=kept["status"], headers=kept["headers"], body=body)
    return Finished(bytes.fromhex(kept["fingerprint"]), answer)


def _try(command: Callable[[Any], T]) -> T | None:
    """Run `command` on a client, within its time-outs; None when Redis is switched off, away or talks nonsense."""
    settings = config()
    if settings.redis_alias is None or not breaker.allows(open_seconds=settings.breaker_seconds):
        return None
    try:
        result = command(get_redis_connection(settings.redis_alias))
    except (RedisError, OSError) as error:
        breaker.failed(open_seconds=settings.breaker_seconds)
        log.warning("Redis is unavailable (%s); working on the ledger alone.", type(error).__name__)
        return None
    except (ValueError, KeyError, TypeError):
        log.warning("A marker in Redis is not ours to read; working on the ledger alone.")
        return None
    breaker.succeeded()
    return result
