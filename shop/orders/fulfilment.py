"""What the warehouse is told: the only writer of its table. Acts on payment events, one at a time and in order."""

from django.db.models.functions import Now

from payments.models import PaymentEvent
from payments.states import PaymentStatus
from shop.models import Fulfilment
from shop.orders import changes

Status = Fulfilment.Status


class OutOfOrder(RuntimeError):
    """An event came after one that follows it: the sequence is broken, and nothing was told."""


def on_event(event: PaymentEvent) -> None:
    """Send what is paid, leave what is refunded whole (setting `PAYMENT_EVENT_HANDLER`).

    Args:
        event: not handled before; the earlier ones of its payment are.

    Raises:
        OutOfOrder: a later one was acted on before.

    Transaction: the one that marks the event as handled. No network.
    """
    told = {
        PaymentStatus.SUCCEEDED: {"status": Status.RELEASED, "released_at": Now()},
        PaymentStatus.PARTIALLY_REFUNDED: {},
        PaymentStatus.REFUNDED: {"status": Status.RECALLED, "recalled_at": Now()},
    }.get(PaymentStatus(event.status))
    if told is None:
        return  # closed unpaid: there is nothing to send
    order_id = event.payment.order_id
    changes.announce(order_id)  # of refunds in part the order itself knows nothing
    if Fulfilment.objects.filter(order_id=order_id, number__lt=event.number).update(number=event.number, **told):
        return
    if Fulfilment.objects.filter(order_id=order_id).exists():
        raise OutOfOrder(f"order {order_id.hex}: event {event.number} came late")
    # a refund that was told before its payment is the first event: then there is nothing to send either
    first = told or {"status": Status.RELEASED, "released_at": Now()}
    Fulfilment.objects.create(order_id=order_id, number=event.number, **first)
