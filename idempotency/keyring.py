"""Operator's keys, under which stored answers are encrypted (`idempotency.response.encryption`)."""

import base64
import binascii
from functools import lru_cache

from django.core.exceptions import ImproperlyConfigured

from idempotency.extras import needed

KEY_BYTES = 32


@lru_cache(maxsize=4)
def keyring(entries: tuple[tuple[str, str], ...]) -> dict[str, bytes]:
    """Decode the operator's keys, in order; ImproperlyConfigured for no 32 bytes, or without `cryptography`."""
    keys = {}
    for key_id, encoded in entries:
        try:
            key = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise ImproperlyConfigured(
                f"IDEMPOTENCY['BODY_KEYS'][{key_id!r}] must be {KEY_BYTES} bytes in base64."
            )
        keys[key_id] = key
    if keys:
        with needed("encryption", by="IDEMPOTENCY['BODY_KEYS']", error=ImproperlyConfigured):
            import cryptography  # noqa: F401, PLC0415  only where bodies are encrypted
    return keys
