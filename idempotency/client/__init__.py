"""Client's half of exactly-once: a key per intent, stored before it is sent and sent again.

httpx transports for any service that speaks the Idempotency-Key header of
draft-ietf-httpapi-idempotency-key-header-07. They need httpx and nothing else, no Django and no other room either:

    keys = FileKeys("/var/lib/shop/keys.sqlite3")
    with httpx.Client(transport=IdempotentTransport(keys=keys)) as client:
        client.post(url, json=order, extensions={"intent": "invoice-17"})
"""

from idempotency.extras import needed

with needed("client", by="idempotency.client"):
    import httpx  # noqa: F401

from idempotency.client.errors import BodyTooLarge, GaveUp, IntentBoundElsewhere
from idempotency.client.keystore import FileKeys, Keys, MemoryKeys
from idempotency.client.transport import AsyncIdempotentTransport, IdempotentTransport

__all__ = [
    "AsyncIdempotentTransport",
    "BodyTooLarge",
    "FileKeys",
    "GaveUp",
    "IdempotentTransport",
    "IntentBoundElsewhere",
    "Keys",
    "MemoryKeys",
]
