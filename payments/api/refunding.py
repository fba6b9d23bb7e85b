"""A refund by API, as recovery points: reserve it, then submit it.

No caller need retry: `idempotency.maintenance.completer` finishes what was cut off.
"""

from functools import partial
from uuid import UUID, uuid5

from django.db import transaction
from django.utils.translation import gettext_noop as _

from idempotency.errors import Problem
from idempotency.protocol.recovery import NotAbandonable, Phases, Progress, RecoveryPoint, Response
from payments.api.serializers import RefundSerializer
from payments.errors import ProviderUnavailable, RefundExceedsPaid, RefundUnavailable
from payments.refunds import steps as refunds
from payments.states import RefundStatus

refunding = Phases("payments.refund")
# the step's, or its own where the ledger is in another database: run again, a step finds its work done
_own_transaction = partial(transaction.atomic, savepoint=False)


@refunding.atomic("asked")
def reserve(progress: Progress) -> RecoveryPoint:
    """Reserve the refund; the key gives its number. `data`: payment, amount_minor, reason."""
    payment_id = UUID(progress.data["payment"])
    try:
        with _own_transaction():
            refund = refunds.request_refund(
                payment_id=payment_id,
                amount_minor=progress.data["amount_minor"],
                reason=progress.data["reason"],
                refund_id=uuid5(payment_id, progress.key_digest),
            )
    except RefundExceedsPaid as refused:
        raise Problem(409, refused.code, str(refused)) from refused
    except RefundUnavailable as refused:
        raise _refused() from refused
    return RecoveryPoint("reserved", {"refund": refund.id.hex})


@refunding.outside("reserved")
def submit(progress: Progress) -> Response:
    """Submit to the provider, under the same number however often this runs."""
    try:
        refund = refunds.submit_refund(UUID(progress.data["refund"]), by_shopper=True)
    except ProviderUnavailable as error:
        raise Problem(
            503,
            "provider_unavailable",
            _("The payment provider cannot be reached at the moment; retry with the same key."),
            headers={"Retry-After": "2"},
        ) from error
    if refund.status == RefundStatus.FAILED:
        raise _refused()
    return Response(201 if refund.status == RefundStatus.SUCCEEDED else 202, RefundSerializer(refund).data)


@refunding.on_abandon
def withdraw(progress: Progress) -> None:
    """Withdraw a refund that the provider was never asked for; refuse for any other."""
    with _own_transaction():
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


def _refused() -> Problem:
    return Problem(409, RefundUnavailable.code, _("The payment provider refused this refund; nothing was moved."))
