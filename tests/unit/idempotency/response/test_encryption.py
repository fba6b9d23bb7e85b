"""Stored answers under lock and key: round trip, rotation, and what must not open."""

import base64
from dataclasses import replace

import pytest
from django.test import override_settings

from idempotency.response import encryption
from idempotency.response.answers import StoredResponse

OLD = base64.b64encode(b"o" * 32).decode()
NEW = base64.b64encode(b"n" * 32).decode()
DIGEST = "ab" * 32


def answer(body: bytes | None = b'{"id": 1}') -> StoredResponse:
    return StoredResponse(status=201, headers={"Location": "/1"}, body=body)


@pytest.mark.parametrize("body", [b"", b"a", bytes(16), b"secret" * 300])
def test_what_is_sealed_opens_again_and_shows_nothing(body: bytes) -> None:
    with override_settings(IDEMPOTENCY={"BODY_KEYS": {"k1": NEW}}):
        sealed = encryption.seal(answer(body), digest=DIGEST)
        assert (sealed.body_key_id, sealed.body is None) == ("k1", False)
        assert len(body) < 4 or body[:8] not in bytes(sealed.body or b"")
        assert encryption.unseal(sealed, digest=DIGEST) == answer(body)


def test_without_keys_nothing_changes() -> None:
    assert encryption.seal(answer(), digest=DIGEST) == answer()
    assert encryption.unseal(answer(None), digest=DIGEST).body is None


def test_another_entrys_or_changed_bytes_do_not_open() -> None:
    with override_settings(IDEMPOTENCY={"BODY_KEYS": {"k1": NEW}}):
        sealed = encryption.seal(answer(), digest=DIGEST)
        assert sealed.body is not None
        with pytest.raises(encryption.EncryptionError, match="another entry"):
            encryption.unseal(sealed, digest="cd" * 32)
        for position in (0, encryption.WRAPPED_BYTES - 1, len(sealed.body) - 1):
            changed = bytearray(sealed.body)
            changed[position] ^= 1
            with pytest.raises(encryption.EncryptionError):
                encryption.unseal(replace(sealed, body=bytes(changed)), digest=DIGEST)
        with pytest.raises(encryption.EncryptionError):
            encryption.unseal(replace(sealed, body=b"short"), digest=DIGEST)
