"""What a person should look at: the only writer of its table."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from payments.models import Anomaly
from payments.providers.base import Fact

Kind = Anomaly.Kind

# kinds whose money we hold and give back by ourselves; the others wait for a person
REFUNDED_BY_POLICY = frozenset({Kind.AMOUNT_MISMATCH, Kind.PAID_AFTER_CLOSE, Kind.PAID_TWICE})


def file_anomaly(
    kind: Anomaly.Kind,
    *,
    fact: Fact | None = None,
    channel: str = "",
    reference: str = "",
    payment_id: UUID | None = None,
    detail: dict[str, Any] | None = None,
) -> Anomaly:
    """Keep it for a person to look at; the same one again is the same row. Needs the caller's transaction.

    One of the same reference that tells something else by now is new work: it is open again, with what it tells
    now. Only what we give back by policy is filed once for good: what it told first is what its refund goes by.
    """
    if fact is not None:
        channel, reference = (
            fact.channel,
            reference_of(merchant=fact.merchant, provider_txn_id=fact.provider_txn_id),
        )
        detail = {
            "out_trade_no": fact.out_trade_no,
            "amount_minor": fact.amount_minor,
            "currency": fact.currency,
            "merchant": fact.merchant,
            **(detail or {}),
        }
    anomaly, is_new = Anomaly.objects.get_or_create(
        kind=kind,
        channel=channel,
        reference=reference,
        defaults={"payment_id": payment_id, "detail": detail or {}},
    )
    if not is_new and kind not in REFUNDED_BY_POLICY and anomaly.detail != (detail or {}):
        anomaly.detail, anomaly.resolution, anomaly.resolved_at = detail or {}, "", None
        anomaly.save(update_fields=["detail", "resolution", "resolved_at"])
    return anomaly


def reference_of(*, merchant: str, provider_txn_id: str) -> str:
    """What an anomaly about a fact is called."""
    return f"{merchant}/{provider_txn_id}"


def resolve_told(kind: Anomaly.Kind, *, channel: str, reference: str, resolution: str) -> None:
    """What was filed under this name is settled, unless it was before.

    Transaction: needs the caller's.
    """
    _open_ones(kind=kind, channel=channel, reference=reference).update(
        resolved_at=Now(), resolution=resolution[:160]
    )


def resolve(anomaly_id: int | None, *, resolution: str) -> None:
    """It is settled, unless it was before; nothing for None.

    Transaction: needs the caller's.
    """
    if anomaly_id is not None:
        _open_ones(pk=anomaly_id).update(resolved_at=Now(), resolution=resolution[:160])


def _open_ones(**named: Any) -> QuerySet[Anomaly, Anomaly]:
    return Anomaly.objects.filter(**named, resolved_at__isnull=True)
