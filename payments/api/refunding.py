"""A refund that a caller asks for, as steps that are gone on with after a crash: reserve it, then have it made.

Nobody needs to retry: what was cut off or is not known yet is ended by `idempotency.maintenance.completer`.
"""

from uuid import UUID, uuid5

from idempotency.errors import Problem
from idempotency.protocol.recovery import NotAbandonable, Phases, Progress, RecoveryPoint, Response
from payments.api.serializers import represent_refund
from payments.errors import ProviderUnavailable, RefundExceedsPaid
from payments.refunds import steps as refunds
from payments.states import RefundStatus

refunding = Phases("payments.refund")


@refunding.atomic("asked")
def reserve(progress: Progress) -> RecoveryPoint:
    """The refund's row, under a number that hangs on the key. `data`: payment, amount_minor, reason."""
    payment_id = UUID(progress.data["payment"])
    try:
        refund = refunds.request_refund(
            payment_id=payment_id,
            amount_minor=progress.data["amount_minor"],
            reason=progress.data["reason"],
            refund_id=uuid5(payment_id, progress.key_digest),
        )
    except RefundExceedsPaid as refused:
        raise Problem(409, refused.code, "More than what was paid and is not yet refunded.") from refused
    return RecoveryPoint("reserved", {"refund": refund.id.hex})


@refunding.outside("reserved")
def submit(progress: Progress) -> Response:
    """Ask the provider, under the same number however often this runs."""
    try:
        refund = refunds.submit_refund(UUID(progress.data["refund"]), by_shopper=True)
    except ProviderUnavailable as error:
        raise Problem(
            503,
            "provider_unavailable",
            "The payment provider cannot be reached at the moment; retry with the same key.",
            headers={"Retry-After": "2"},
        ) from error
    if refund.status == RefundStatus.FAILED:
        raise Problem(409, "refund_refused", "The payment provider refused this refund; nothing was moved.")
    return Response(201 if refund.status == RefundStatus.SUCCEEDED else 202, represent_refund(refund))


@refunding.on_abandon
def withdraw(progress: Progress) -> None:
    """No timer makes it any more; once the provider has been asked for it, nobody can promise that."""
    refund = refunds.withdraw_refund(
        UUID(progress.data["refund"]), message="abandoned by an operator before the provider was asked"
    )
    if refund.status == RefundStatus.SUCCEEDED:
        raise NotAbandonable("The provider has made this refund. Resolve the entry instead.")
    if refund.status != RefundStatus.FAILED:
        raise NotAbandonable(
            "The provider was asked for this refund and may have made it. The timer goes on asking under the same "
            "number; decide when it has found out."
        )
