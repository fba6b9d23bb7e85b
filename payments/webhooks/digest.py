"""Digest of a notification's content: copies differ in bytes, by encryption."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from payments.providers.base import Fact, Notice


def digest_of(notice: Notice) -> str:
    """Digest what the notification says: SHA-256, hexadecimal.

    It is stored, so the members are named here one by one and follow from no class's layout.
    """
    said: list[Any] = [notice.event_type, [_members(fact) for fact in notice.facts]]
    if (refund := notice.refund) is not None:
        said.append([refund.status.value, refund.out_refund_no, refund.message])
    return hashlib.sha256(json.dumps(said, default=str).encode()).hexdigest()


def _members(fact: Fact) -> list[str | int | None]:
    dispute = fact.dispute
    return [
        fact.kind.value,
        fact.channel,
        fact.merchant,
        fact.out_trade_no,
        fact.provider_txn_id,
        fact.amount_minor,
        fact.currency,
        _moment(fact.occurred_at),
        fact.out_refund_no,
        fact.paid_txn_id,
        fact.paid_minor,
        *(["whole"] if fact.is_whole else []),  # rows older than this member have none
        *([dispute.status.value, dispute.reason, _moment(dispute.respond_by)] if dispute else []),
    ]


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
