"""Instructions to the warehouse, from payment events in order. Their only writer."""

from django.db.models.functions import Now

from payments.models import PaymentEvent
from payments.settlement import events
from payments.states import PaymentStatus
from shop.models import Fulfilment, Order
from shop.orders import changes

Status = Fulfilment.Status


class OutOfOrder(RuntimeError):
    """An event after one that follows it: the order is broken, and nothing was written."""


def on_event(event: PaymentEvent) -> None:
    """Release paid orders and queue their receipts; recall fully refunded ones.

    For ``PAYMENTS["EVENTS"]``: the event was not handled before, and the earlier ones of its payment were.
    Raises OutOfOrder: a later one was.

    Transaction: the one that marks the event as handled. No network.
    """
    released = {"status": Status.RELEASED, "released_at": Now()}
    change = {
        PaymentStatus.SUCCEEDED: released,
        PaymentStatus.PARTIALLY_REFUNDED: {},
        PaymentStatus.REFUNDED: {"status": Status.RECALLED, "recalled_at": Now()},
    }.get(PaymentStatus(event.status))
    if change is None:
        return  # closed unpaid: there is nothing to send
    order_id = event.payment.order_id
    changes.announce(order_id)  # the order itself does not know of refunds in part
    mailed = Order.objects.filter(pk=order_id).exclude(user__email="")
    if event.status == PaymentStatus.SUCCEEDED and mailed.exists():
        events.defer("shop.send_receipt", order_id=order_id.hex)  # commits with the event
    if Fulfilment.objects.filter(order_id=order_id, number__lt=event.number).update(number=event.number, **change):
        return
    if Fulfilment.objects.filter(order_id=order_id).exists():
        raise OutOfOrder(f"order {order_id.hex}: event {event.number} came late")
    # a refund notified before its payment is the first event: then there is nothing to send either
    Fulfilment.objects.create(order_id=order_id, number=event.number, **(change or released))
