"""Anomalies, for a person to look at: the only writer of their table."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from idempotency.postgres.statements import Statement, send
from payments.settlement import backoff, queries, staging
from payments.settlement.decision import Filing, PolicyRefund
from payments.states import ANOMALY_FILED, REFUNDED_BY_POLICY, AnomalyKind


def filed(filing: Filing) -> list[Statement]:
    """File an anomaly with its deliveries and policy refund; the same again is the same row.

    One that says something else by now is open again; what policy refunds goes by what it said first.
    """
    named, detail = [filing.kind.value, filing.channel, filing.reference], Jsonb(dict(filing.detail))
    if not filing.is_news:
        return [Statement(queries.RESTATE, [detail, *named])]
    values: list[Any] = [*named, filing.payment_id, detail]
    data = staging.anomaly_data(filing)
    if (refund := filing.refund) is None:
        values += [filing.kind in REFUNDED_BY_POLICY, ANOMALY_FILED, Jsonb(data)]
        return [Statement(queries.FILE, [*values, *staging.addressed(ANOMALY_FILED)])]
    values += _columns(refund)
    both = Statement(queries.FILE_AND_REFUND, values, rows=1, certain=True)
    return [both, *staging.staged(ANOMALY_FILED, filing.payment_id, data)]


def file_anomaly(
    kind: AnomalyKind, *, channel: str, reference: str, detail: Mapping[str, Any], payment_id: UUID | None = None
) -> None:
    """File an anomaly that is not about a fact.

    Transaction: needs the caller's.
    """
    filing = Filing(kind=kind, channel=channel, reference=reference, payment_id=payment_id, detail=detail)
    send(*filed(filing))


def approve(anomaly_id: int, *, refund: PolicyRefund) -> bool:
    """Store the refund that waits for an operator's approval; return whether it still waited.

    Transaction: needs the caller's.
    """
    return bool(send(Statement(queries.APPROVE_REFUND, [anomaly_id, *_columns(refund)]))[0])


def resolve(anomaly_id: int, *, resolution: str) -> None:
    """Settle an anomaly, unless it was before; of `resolution` 160 characters are stored.

    Transaction: needs the caller's.
    """
    send(Statement(queries.RESOLVE, [resolution[:160], anomaly_id]))


def resolve_named(kind: AnomalyKind, *, channel: str, reference: str, resolution: str) -> None:
    """Resolve an anomaly, as `resolve`, by what it was filed under."""
    send(Statement(queries.RESOLVE_NAMED, [resolution[:160], kind.value, channel, reference]))


def _columns(refund: PolicyRefund) -> list[Any]:
    delay = backoff.delay_seconds(0)  # the job comes first
    return [refund.id, refund.attempt_id, refund.payment_id, refund.amount_minor, refund.reason, delay]
