"""Refund of an order, from the project's own code."""

from uuid import UUID

from django.db import transaction
from django.db.models import Model

from payments.models import Payment, Refund
from payments.order_keys import payment_of
from payments.refunds.steps import exceeds, request_refund, submit_refund


def refund(
    order: Model, *, amount_minor: int | None = None, reason: str = "", refund_id: UUID | None = None
) -> Refund:
    """Give an order's money back, all that is left or a part.

    Args:
        amount_minor: above zero, in minor units; None: all that is left.
        reason: shown to the shopper: 80 characters, the rest is cut.
        refund_id: the caller's own number for it; a second call with it goes on with the first one's refund.

    Returns:
        The refund, as `payments.refunds.steps.submit_refund` does.

    Raises:
        RefundExceedsPaid: not so much is left, or nothing.
        RefundUnavailable: the channel gives nothing back, or no part.
        ValueError: `refund_id` is of another order's refund or amount, or the amount not above zero.
        TypeError: of another model than `Payable.model`, or an amount that is no int.
        ProviderUnavailable: cannot be reached; the refund stays reserved, the timer tries again.

    Transaction: NONE may be open; the reservation is committed before the provider is called.
    """
    with transaction.atomic(durable=True):
        payment = Payment.objects.filter(payment_of(order)).first()
        if payment is None:
            raise exceeds(None)
        asked = request_refund(
            payment_id=payment.pk,
            amount_minor=amount_minor,
            reason=(reason or "")[: Refund._meta.get_field("reason").max_length],
            refund_id=refund_id,
        )
        if amount_minor not in {None, asked.amount_minor}:
            number = asked.out_refund_no
            raise ValueError(f"{number} is the number of a refund of {asked.amount_minor}, not {amount_minor}")
    return submit_refund(asked.pk)
