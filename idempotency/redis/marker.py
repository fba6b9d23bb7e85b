"""Redis marker before the ledger: holds off duplicates, replays finished answers.

It never decides. Flushed, paused, stopped, lagging or lying, the worst it can do is to let a duplicate run as far
as the unique constraint of the ledger. With Redis away every function returns at once (`fastpath.attempt`).

Values: ``R<fingerprint hex>:<owner>`` while running; ``F<json>\\n<bytes of the answer>`` when finished. Where
`BODY_KEYS` is set, the second is sealed as a whole (`idempotency.response.encryption`), and one without a seal is
no answer: the ledger is asked. Keys carry a hash tag, so that a script's keys share one slot of a Redis Cluster; a
marker's key is also the channel on which its end is published.
"""

import json
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from idempotency.conf import config
from idempotency.ledger import redis_prefix
from idempotency.redis.connection import Connection, connection_of
from idempotency.redis.fastpath import Script, attempt, breaker
from idempotency.response import encryption
from idempotency.response.answers import StoredResponse

# made once: `json.dumps` would make one for every answer, and `json.loads` would guess its encoding
_encoder = json.JSONEncoder(separators=(",", ":"))
_decoder = json.JSONDecoder()

_claim_script = Script("claim", package="idempotency.redis")
_release_script = Script("release", package="idempotency.redis")


@dataclass(frozen=True, slots=True)
class Claimed:
    """Marker taken by this call; `value` releases it."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Running:
    """Marker of a concurrent duplicate that is running."""

    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """Marker of a call that was answered."""

    fingerprint: bytes
    answer: StoredResponse


Found = Claimed | Running | Finished


def key_of(digest: str) -> str:
    """Name a marker and its channel, for the ledger's current epoch.

    Raises:
        django.db.Error: as `ledger.redis_prefix`.
    """
    return f"{redis_prefix()}:key:{{{digest}}}"


def claim(name: str, *, fingerprint: bytes, owner: str, ttl_seconds: float) -> Found | None:
    """Take a marker, or return the present one, by one command. None: ask the ledger."""
    value = b"R" + fingerprint.hex().encode() + b":" + owner.encode()

    def ask(redis: Any) -> Found | None:
        found = _set_or_get(connection_of(redis), name, value, round(ttl_seconds * 1000))
        return Claimed(value) if found is None else _read(found, name=name)

    return attempt(ask)


def _set_or_get(connection: Connection, name: str, value: bytes, milliseconds: int) -> bytes | None:
    """Set the marker, or return the present one. Before Redis 7 a script does it."""
    if connection.has_set_nx_get:
        try:
            found: bytes | None = connection.ask("SET", name, value, "NX", "GET", "PX", milliseconds)
            return found
        except ResponseError as error:
            if "syntax" not in str(error):
                raise
            connection.has_set_nx_get = False
    return _claim_script.run(connection, [name], [value, milliseconds])  # type: ignore[no-any-return]


def look(name: str) -> Running | Finished | None:
    """Read a marker; None if there is none, or Redis is unavailable."""
    return attempt(lambda redis: _read(connection_of(redis).ask("GET", name), name=name))


def finish(
    name: str,
    *,
    fingerprint: bytes,
    answer: StoredResponse,
    ttl_seconds: float,
    wait: bool = True,
    wake: bool = True,
) -> None:
    """Store `answer`, committed and not sealed yet, so that replays need no SQL.

    Overwrites any marker: the ledger has decided, so a duplicate's running marker is stale. A caller that has just
    claimed here need not `wait`: Redis was there, and if it went since, only a marker is lost.

    Args:
        wake: duplicates of this call may wait for it. Any other that waits looks after a marker's life.
    """
    milliseconds = round(ttl_seconds * 1000)
    if milliseconds > 0:
        value = _written(fingerprint, answer)
        if config().body_keys:
            value = encryption.seal_for_redis(value, name=name)
        commands = [("SET", name, value, "PX", milliseconds), *[("PUBLISH", name, "finished")] * wake]
        attempt(lambda redis: connection_of(redis).send_together(*commands, wait=wait or not breaker.is_closed))


def release(name: str, claimed: Claimed) -> None:
    """Delete a marker that is still ours, so that the same key may try again at once."""
    attempt(lambda redis: _release_script.run(connection_of(redis), [name], [claimed.value]))


def ring(name: str) -> None:
    """Wake waiters of this key: its phased run has ended, without an answer to store here."""
    attempt(lambda redis: redis.publish(name, b"ended"))


def _written(fingerprint: bytes, answer: StoredResponse) -> bytes:
    head = {
        "fingerprint": fingerprint.hex(),
        "status": answer.status,
        "headers": answer.headers,
        "kept": answer.body is not None,
    }
    return b"F" + _encoder.encode(head).encode() + b"\n" + (answer.body or b"")


def _read(value: bytes | None, *, name: str) -> Running | Finished | None:
    if value is None:
        return None
    if not isinstance(value, bytes):  # of another server, or a proxy in front of one
        raise TypeError("no value of a marker")
    if value[:1] == b"R":
        return Running(bytes.fromhex(value[1:].split(b":", 1)[0].decode()))
    if config().body_keys:
        value = encryption.open_from_redis(value, name=name)
    encoded, body = value[1:].split(b"\n", 1)
    head = _decoder.decode(encoded.decode())
    answer = StoredResponse(status=head["status"], headers=head["headers"], body=body if head["kept"] else None)
    return Finished(bytes.fromhex(head["fingerprint"]), answer)
