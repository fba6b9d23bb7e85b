"""Ledger: one entry a key; its unique constraint decides between concurrent duplicates.

Only this room writes the ledger's tables. It never talks to Redis and knows no request and no view. The protocol,
maintenance and the admin come in by the names below; `redis` asks for the epoch.
"""

from idempotency.ledger.claiming import await_duplicate, hold, record, redis_prefix, renew_epoch
from idempotency.ledger.identity import Entry, Identity, Numbered, Run
from idempotency.ledger.leasing import (
    claim_phased,
    close_by_hand,
    complete_phased,
    drop_lease,
    forget,
    forget_stalled,
    mark_point,
    note_subject,
    renew_leases,
    suspend,
    take_over,
    was_uncertain,
)
from idempotency.ledger.reading import find, numbered, numbered_key, stalled
from idempotency.ledger.reaping import drop_messages, drop_tombstones, note_reaping, purge_bodies

__all__ = [
    "Entry",
    "Identity",
    "Numbered",
    "Run",
    "await_duplicate",
    "claim_phased",
    "close_by_hand",
    "complete_phased",
    "drop_lease",
    "drop_messages",
    "drop_tombstones",
    "find",
    "forget",
    "forget_stalled",
    "hold",
    "mark_point",
    "note_reaping",
    "note_subject",
    "numbered",
    "numbered_key",
    "purge_bodies",
    "record",
    "redis_prefix",
    "renew_epoch",
    "renew_leases",
    "stalled",
    "suspend",
    "take_over",
    "was_uncertain",
]
