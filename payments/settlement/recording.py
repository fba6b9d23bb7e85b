"""The statements that write what a fact changes: fact, attempt and payment. Written by hand, and sent together.

Callers hold the payment's row lock, or begin with `lock`; `payments.settlement.observations` decides what is
written.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from idempotency.postgres.statements import Statement
from payments.models import Attempt, Observation, Payment
from payments.settlement.known import KnownAttempt, KnownFact, KnownPayment
from payments.states import AttemptStatus, attempts_before

_OBSERVATION = Observation._meta.db_table
_ATTEMPT = Attempt._meta.db_table
_PAYMENT = Payment._meta.db_table

KEEP = f"""
INSERT INTO {_OBSERVATION} (channel, merchant, provider_txn_id, kind, attempt_id, amount_minor, currency,
    out_refund_no, paid_txn_id, credited, source, occurred_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""  # noqa: S608  the names in these are our own

_END = f"""
UPDATE {_ATTEMPT} SET status = '{{after}}', next_query_at = NULL
WHERE id = %s AND status IN ({{before}}) RETURNING id
"""  # noqa: S608

_BEFORE = {after: attempts_before(after) for after in (AttemptStatus.CLOSED, AttemptStatus.SUCCEEDED)}
_ENDS = {
    after: _END.format(after=after.value, before=", ".join(f"'{status}'" for status in before))
    for after, before in _BEFORE.items()
}
_SETTLE = f"""
UPDATE {_PAYMENT} SET status = %s, paid_minor = %s, refunded_minor = %s, reserved_minor = %s,
    version = version + 1, updated_at = statement_timestamp()
WHERE id = %s AND version = %s{{and_untold}} RETURNING id
"""  # noqa: S608
_SETTLE_ANY = _SETTLE.format(and_untold="")
_SETTLE_UNTOLD = _SETTLE.format(
    and_untold=f"""
    AND NOT EXISTS (SELECT FROM {_ATTEMPT} WHERE payment_id = %s AND id <> %s OFFSET 0)
    AND NOT EXISTS (SELECT FROM {_OBSERVATION} WHERE attempt_id = %s OFFSET 0)"""  # noqa: S608
)
_LOCK = f"SELECT id FROM {_PAYMENT} WHERE id = %s FOR NO KEY UPDATE"  # noqa: S608


def keep(fact: KnownFact, *, occurred_at: datetime | None) -> Statement:
    """Keep a fact; its unique identity refuses a second one.

    Args:
        occurred_at: the provider's time, aware; None where it gave none.
    """
    return Statement(
        KEEP,
        [
            *(fact.channel, fact.merchant, fact.provider_txn_id, fact.kind, fact.attempt_id),
            *(fact.amount_minor, fact.currency, fact.out_refund_no, fact.paid_txn_id),
            *(fact.credited, fact.source, occurred_at),
        ],
        rows=1,
        certain=True,
    )


def end_attempt(attempt: KnownAttempt, status: AttemptStatus) -> list[Statement]:
    """A live attempt ends; a closed one may turn out to be paid; a paid one stays so.

    Args:
        attempt: as it was read with its payment, without whose lock nobody changes its status.
        status: `CLOSED` or `SUCCEEDED`.
    """
    if attempt.status not in _BEFORE[status]:
        return []
    attempt.status = status.value
    return [Statement(_ENDS[status], [attempt.id], rows=1)]


def settle(payment: KnownPayment, **after: int | str) -> Statement:
    """Its status and totals by compare-and-set on its version, which counts up.

    Args:
        payment: as it was read under its lock; it has `after`, and the version, from now on.
        after: ``status``, ``paid_minor``, ``refunded_minor`` and ``reserved_minor``.
    """
    return Statement(_SETTLE_ANY, _settled(payment, after), rows=1)


def settle_untold(payment: KnownPayment, attempt: KnownAttempt, /, **after: int | str) -> Statement:
    """As `settle`, for a payment that was read without its lock: changes no row where its version is another now,
    where it has another attempt, or where anything was told about this one.

    To be sent after `lock` and after the order's step, and before the fact: so it sees what was written under the
    locks of both.
    """
    return Statement(_SETTLE_UNTOLD, [*_settled(payment, after), payment.id, attempt.id, attempt.id], rows=1)


def lock(payment: KnownPayment) -> Statement:
    """Wait for the payment's row. It is only locked before its order is: an update of it would make those wait who
    hold the order and look whether there is a payment, and whom the order's step waits for.
    """
    return Statement(_LOCK, [payment.id])


def _settled(payment: KnownPayment, after: Mapping[str, int | str]) -> list[Any]:
    known = payment.version
    for name, value in after.items():
        setattr(payment, name, value)
    payment.version = known + 1
    totals = (payment.paid_minor, payment.refunded_minor, payment.reserved_minor)
    return [payment.status, *totals, payment.id, known]
