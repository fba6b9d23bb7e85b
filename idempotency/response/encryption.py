"""Encryption of stored answers: the ledger's body, and all of an answer in Redis.

Envelope encryption: each answer has a data key of its own, which encrypts the bytes; the data key lies beside
them, wrapped under one of the operator's keys (`IDEMPOTENCY["BODY_KEYS"]`, the first one for what is new). A
former one is needed until the answers under it are purged (`BODY_SECONDS`).

Both steps are AES-256-GCM. The associated data is the entry's digest in the ledger, and the key's whole name in
Redis: bytes that are copied to another row, or under another name, do not open.
Source: NIST SP 800-38D (November 2007); nonces are 96 random bits, a data key encrypts once. An operator's key
wraps two data keys an answer; rotate it before 2**31 answers.

Layout of sealed bytes: nonce (12) + wrapped data key (32 + 16 tag) + nonce (12) + ciphertext with tag (n + 16).
"""

import os
from dataclasses import replace

from idempotency.conf import config
from idempotency.conf.readers import KEY_BYTES, keyring
from idempotency.response.answers import StoredResponse

NONCE_BYTES = 12
WRAPPED_BYTES = NONCE_BYTES + KEY_BYTES + 16
_SEALED = b"S"  # how a sealed value in Redis begins; then the key's id and a line feed


class EncryptionError(ValueError):
    """Stored answer that cannot be opened: its key left BODY_KEYS, or it was changed."""


def seal(answer: StoredResponse, *, digest: str) -> StoredResponse:
    """Encrypt the body of `answer` under the first key, if there is a key and a body.

    Args:
        answer: as the handler gave it.
        digest: of its ledger entry (`keys.digest_of`).
    """
    if not config().body_keys or answer.body is None:
        return answer
    key_id, body = _sealed(answer.body, digest)
    return replace(answer, body=body, body_key_id=key_id)


def unseal(answer: StoredResponse, *, digest: str) -> StoredResponse:
    """Invert `seal`. Raises EncryptionError: see there."""
    if not answer.body_key_id or answer.body is None:
        return answer
    return replace(answer, body=_opened(answer.body_key_id, answer.body, digest), body_key_id="")


def seal_for_redis(value: bytes, *, name: str) -> bytes:
    """Seal `value` for Redis under `name`, where there are keys."""
    if not config().body_keys:
        return value
    key_id, sealed = _sealed(value, name)
    return _SEALED + key_id.encode() + b"\n" + sealed


def open_from_redis(value: bytes, *, name: str) -> bytes:
    """Invert `seal_for_redis`; EncryptionError where there are keys and `value` has no seal."""
    if not config().body_keys:
        return value
    if not value.startswith(_SEALED):  # anyone who can write to Redis can write such a value
        raise EncryptionError("An answer in Redis is not sealed, although BODY_KEYS is set.")
    key_id, _, sealed = value[len(_SEALED) :].partition(b"\n")
    return _opened(key_id.decode(), sealed, name)


def _sealed(plain: bytes, associated: str) -> tuple[str, bytes]:
    """Encrypt under a fresh data key; return the id of the key that wraps it, and the bytes."""
    key_id, key = next(iter(keyring(tuple(config().body_keys.items())).items()))
    data_key = os.urandom(KEY_BYTES)
    return key_id, _encrypt(key, data_key, associated) + _encrypt(data_key, plain, associated)


def _opened(key_id: str, sealed: bytes, associated: str) -> bytes:
    key = keyring(tuple(config().body_keys.items())).get(key_id)
    if key is None:
        raise EncryptionError(f"An answer is encrypted under the key {key_id!r}, which is not in BODY_KEYS.")
    data_key = _decrypt(key, sealed[:WRAPPED_BYTES], associated)
    return _decrypt(data_key, sealed[WRAPPED_BYTES:], associated)


def _encrypt(key: bytes, plain: bytes, associated: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, associated.encode())


def _decrypt(key: bytes, sealed: bytes, associated: str) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated.encode())
    except (InvalidTag, ValueError) as error:
        raise EncryptionError("A stored answer was changed, or belongs to another entry.") from error
