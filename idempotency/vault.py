"""Encryption of stored answers: what lies in the ledger and in Redis tells its reader nothing.

Envelope encryption: each answer has a data key of its own, which encrypts the bytes; the data key lies beside
them, wrapped under one of the operator's keys (`IDEMPOTENCY["BODY_KEYS"]`, the first one for what is new). So a
rotation only wraps the small data keys anew (`manage.py idempotency rewrap`) and never touches the bytes.

Both steps are AES-256-GCM with the entry's digest as associated data: a body copied to another row does not open.
Source: NIST SP 800-38D (November 2007); nonces are 96 random bits, a data key encrypts once.

Layout of sealed bytes: nonce (12) + wrapped data key (32 + 16 tag) + nonce (12) + ciphertext with tag (n + 16).
"""

import os
from dataclasses import replace

from idempotency.conf import config
from idempotency.keyring import KEY_BYTES, keyring
from idempotency.response import StoredResponse

NONCE_BYTES = 12
WRAPPED_BYTES = NONCE_BYTES + KEY_BYTES + 16


class VaultError(Exception):
    """A stored answer cannot be opened: its key is no longer in BODY_KEYS, or the bytes are not what we wrote."""


def seal(answer: StoredResponse, *, digest: str) -> StoredResponse:
    """`answer` with its body encrypted under the first key; unchanged if there is no key or no body.

    Args:
        answer: as the handler gave it.
        digest: of its ledger entry (`keys.digest_of`).
    """
    keys = keyring(tuple(config().body_keys.items()))
    if not keys or answer.body is None:
        return answer
    key_id = next(iter(keys))
    data_key = os.urandom(KEY_BYTES)
    body = _encrypt(keys[key_id], data_key, digest) + _encrypt(data_key, answer.body, digest)
    return replace(answer, body=body, body_key_id=key_id)


def unseal(answer: StoredResponse, *, digest: str) -> StoredResponse:
    """The inverse of `seal`.

    Raises:
        VaultError: see there.
    """
    if not answer.body_key_id or answer.body is None:
        return answer
    wrapped, sealed = answer.body[:WRAPPED_BYTES], answer.body[WRAPPED_BYTES:]
    data_key = _decrypt(_key(answer.body_key_id), wrapped, digest)
    return replace(answer, body=_decrypt(data_key, sealed, digest), body_key_id="")


def rewrap(body: bytes, *, key_id: str, digest: str) -> tuple[bytes, str]:
    """Sealed bytes with their data key wrapped under the first key, and that key's id.

    Raises:
        VaultError: `key_id` is not in BODY_KEYS, or the bytes are not what we wrote.
    """
    keys = keyring(tuple(config().body_keys.items()))
    newest = next(iter(keys), "")
    data_key = _decrypt(_key(key_id), body[:WRAPPED_BYTES], digest)
    return _encrypt(keys[newest], data_key, digest) + body[WRAPPED_BYTES:], newest


def _key(key_id: str) -> bytes:
    keys = keyring(tuple(config().body_keys.items()))
    if key_id not in keys:
        raise VaultError(f"An answer is encrypted under the key {key_id!r}, which is not in BODY_KEYS.")
    return keys[key_id]


def _encrypt(key: bytes, plain: bytes, digest: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, digest.encode())


def _decrypt(key: bytes, sealed: bytes, digest: str) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], digest.encode())
    except (InvalidTag, ValueError) as error:
        raise VaultError("A stored answer was changed, or belongs to another entry.") from error
