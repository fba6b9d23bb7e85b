"""What the bugs do, each in place of one function or two. Every one was somebody's."""

from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from idempotency.ids import new_id
from idempotency.models import LedgerAttempt, LedgerEntry, Outcome, State
from idempotency.redis import fastpath, marker
from payments.models import Payment, Refund
from payments.providers.base import FactKind
from payments.settlement.backoff import after
from shop.models import Product
from tests.system.chaos import planted
from tests.system.chaos.planted import plant


@plant(planted.MARKER_WITHOUT_NX, "idempotency.redis.marker", "claim")
def claim(original: Any, name: str, *, fingerprint: bytes, owner: str, ttl_seconds: float) -> Any:
    """SET where SET NX belongs: every concurrent duplicate takes the key for its own."""
    value = b"R" + fingerprint.hex().encode() + b":" + owner.encode()
    fastpath.attempt(lambda redis: redis.set(name, value, px=round(ttl_seconds * 1000)))
    return marker.Claimed(value)


@plant(planted.COMPLETION_WITHOUT_CAS, "idempotency.ledger", "complete_phased")
def complete_phased(original: Any, run: Any, answer: Any, *, subject: str) -> bool:
    """The last one overwrites what another was answered."""
    LedgerEntry.objects.filter(pk=run.entry_id).update(
        state=State.FINISHED,
        lease_until=None,
        subject=subject,
        response_status=answer.status,
        response_headers=answer.headers,
        response_body=answer.body,
        body_key_id=answer.body_key_id,
        finished_at=Now(),
    )
    LedgerAttempt.objects.filter(entry=run.entry_id, outcome=Outcome.RUNNING).update(
        outcome=Outcome.FINISHED, ended_at=Now()
    )
    return True


@plant(planted.LEASE_IGNORED, "idempotency.ledger", "take_over")
def take_over(original: Any, entry: Any, **who: Any) -> Any:
    """A retry runs although the first still does."""
    LedgerEntry.objects.filter(pk=entry.entry_id, state=State.RUNNING).update(lease_until=Now())
    return original(entry, **who)


@plant(planted.CALLBACK_WITHOUT_UNIQUE_ROW, "payments.settlement.notifications", "found")
def find_notification(original: Any, rows: Any) -> None:
    """Every copy is the first."""


@plant(planted.CALLBACK_WITHOUT_UNIQUE_ROW, "payments.settlement.state:PaymentState", "find")
def find_fact(original: Any, state: Any, fact: Any) -> None:
    """And so is every fact."""


@plant(planted.REFUND_WITHOUT_RESERVATION, "payments.refunds.steps", "request_refund")
def request_refund(
    original: Any, *, payment_id: UUID, amount_minor: int, reason: str, refund_id: UUID | None = None
) -> Refund:
    """What is left is looked at, and not taken."""
    if refund_id is not None and (known := Refund.objects.filter(pk=refund_id).first()) is not None:
        return known
    payment = Payment.objects.get(pk=payment_id)
    captured = payment.attempts.get(observations__kind=FactKind.PAID.value, observations__credited=True)
    return Refund.objects.create(
        id=refund_id or new_id(),
        attempt=captured,
        payment=payment,
        amount_minor=amount_minor,
        reason=reason,
        next_query_at=after(query_count=0),
    )


@plant(planted.REAPER_WITHOUT_FILTER, "idempotency.ledger", "drop_tombstones")
def drop_tombstones(original: Any, *, limit: int) -> int:
    """Everything goes, however young, finished or not."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM idempotency_ledgerattempt")
        cursor.execute("DELETE FROM idempotency_ledgerentry")
        return 0


@plant(planted.STOCK_WITHOUT_CONDITION, "shop.stock", "reserve")
def reserve(original: Any, *, quantities: Any, **more: Any) -> None:
    """Units are taken, whether or not they are there."""
    for product, quantity in sorted(quantities.items(), key=lambda item: item[0].pk):
        Product.objects.filter(pk=product.pk).update(stock=F("stock") - quantity, version=F("version") + 1)
