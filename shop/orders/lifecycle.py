"""Life of a placed order: paid, refunded, cancelled, expired. Its status's only writer.

A step is a conditional UPDATE on the status that was decided on: of two concurrent steps one finds it, the other
reads again. An order's units go back in the transaction of the step that closes it, hence once.

Closing takes three commits, because a shopper may be paying meanwhile: mark the order as closing (no new payment
can start), close every open attempt at its provider with no transaction open, close the order. `expire` finishes
what a crash cuts off.

Lock order: the order's row, then products by primary key. Payment rows are never locked from here; inside the
settling transaction the payments app locks its payment first and then calls `on_payment`.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial, update_wrapper
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from idempotency.postgres.statements import Statement, UnitOfWork, send
from payments.attempts import closing
from shop import stock
from shop.errors import OrderNotFound, OrderPaid
from shop.models import Order, OrderItem, OrderStatus
from shop.orders import changes
from shop.orders.placing import get_order

# the only updates of a status, which return the row that they changed; by hand: every notification takes one, and
# the ORM's compiler would be a tenth of the time
_PAY = """
UPDATE shop_order SET status = 'paid', version = version + 1, paid_at = statement_timestamp()
WHERE id = %s AND status = 'pending' RETURNING id
"""
_CLOSE = """
UPDATE shop_order SET status = 'closed', version = version + 1, closed_at = statement_timestamp()
WHERE id = %s AND status = 'pending' RETURNING id
"""
_REFUND = """
UPDATE shop_order SET status = 'refunded', version = version + 1
WHERE id = %s AND status = 'paid' RETURNING id
"""

# called with ``order_id`` after the commit that closed an order; `shop.apps` adds the sales' part
after_closing: list[Callable[..., None]] = []

CLOSING_GRACE_SECONDS = 60  # longer than one closing takes, so that the timer does not run beside it


def cancel(*, order_id: UUID, user_id: int) -> Order:
    """Close the user's unpaid order, at the payment providers first.

    Returns:
        The order: `closed`, also if it was before; still `pending` when a provider's answer is missing: it takes
        no payment any more, and `expire` finishes, or a payment that was faster wins.

    Raises:
        OrderNotFound: there is none, or it is another user's.
        OrderPaid: the payment was faster.

    Transaction: NONE may be open; opens its own short ones around the calls to the providers. May run again.
    """
    get_order(order_id=order_id, user_id=user_id)
    if _close(order_id=order_id, by_shopper=True) in {OrderStatus.PAID, OrderStatus.REFUNDED}:
        raise OrderPaid
    return get_order(order_id=order_id, user_id=user_id)


def expire(*, order_id: UUID) -> OrderStatus:
    """Close an order that is past its time or whose closing was cut off; leave any other alone.

    Returns:
        Its status now; `pending` if it is not due, or a provider's answer is missing (a later run tries again).

    Raises:
        OrderNotFound: there is none.

    Transaction: NONE may be open; as `cancel`.
    """
    order = Order.objects.filter(pk=order_id).first()
    if order is None:
        raise OrderNotFound
    if order.status != OrderStatus.PENDING or (not order.closing_at and order.expires_at > timezone.now()):
        return OrderStatus(order.status)
    return _close(order_id=order_id)


def due_for_closing(*, now: datetime, limit: int) -> list[UUID]:
    """List orders for `expire`, those tried least recently first: a stuck one blocks no other."""
    return list(
        Order.objects.filter(status=OrderStatus.PENDING)
        .filter(Q(closing_at__isnull=True, expires_at__lte=now) | _is_stalled(now))
        .order_by(F("closing_at").asc(nulls_first=True), "expires_at")
        .values_list("id", flat=True)[:limit]
    )


def on_payment(*, order_id: UUID, event: str, work: UnitOfWork) -> bool:
    """Take a step of the order inside the transaction that settles its payment.

    As of `payments.conf.Orders`: called before the payment's row and the fact are written, and looks at neither.

    Args:
        event: ``paid``; ``refunded`` (all of it); ``closed`` (every attempt is closed unpaid at its provider);
            ``payable`` asks whether an attempt may still be opened.
        work: what the settlement sends with our step, its lock of the payment first.

    Returns:
        Whether the order takes it. False for a payment of an order that is closed or unknown: the money must go
        back. The same event again changes nothing and answers the same.

    Transaction: needs the caller's, but for ``payable``. No network, no lock on payments.
    """
    if event == "paid":
        if work.step(Statement(_PAY, [order_id])):
            changes.announce(order_id)
            return True
        return _status(order_id) in {OrderStatus.PAID, OrderStatus.REFUNDED}
    work.flush()
    if event == "refunded":
        # a refund that arrives before its payment implies the payment
        _step(_PAY, order_id)
        _step(_REFUND, order_id)
        return _status(order_id) is not None
    if event == "closed":
        # a QR code that timed out leaves the order payable by a new attempt until its own time is over
        ending = Q(closing_at__isnull=False) | Q(expires_at__lte=timezone.now())
        if Order.objects.filter(ending, pk=order_id, status=OrderStatus.PENDING).exists():
            _close_here(order_id=order_id)
        return _status(order_id) is not None
    if event == "payable":
        open_still = Order.objects.filter(status=OrderStatus.PENDING, closing_at__isnull=True)
        return open_still.filter(pk=order_id, expires_at__gt=timezone.now()).exists()
    raise ValueError(f"unknown payment event {event!r}")


def return_url(*, order_id: UUID) -> str:
    """Return the page that shows what became of the payment (`payments.conf.Orders`)."""
    return reverse("back", args=[order_id])


def _close(*, order_id: UUID, by_shopper: bool = False) -> OrderStatus:
    """Close at the providers, then here; return the status. No transaction may be open."""
    pending, now = Order.objects.filter(pk=order_id, status=OrderStatus.PENDING), timezone.now()
    # waits for a payment attempt that is just being opened, and lets none begin after it
    is_first = bool(pending.filter(closing_at__isnull=True).update(closing_at=now))
    shopper_repeats = by_shopper and not is_first  # which does not put the timer off
    stalled = pending.filter(_is_stalled(now))
    if is_first or (pending.exists() if shopper_repeats else stalled.update(closing_at=now)):
        result = closing.close_payment(order_id=order_id, by_shopper=shopper_repeats)
        if result in {closing.CloseResult.CLOSED, closing.CloseResult.NONE}:
            with transaction.atomic():
                _close_here(order_id=order_id)
    return OrderStatus(Order.objects.values_list("status", flat=True).get(pk=order_id))


def _is_stalled(now: datetime) -> Q:
    return Q(closing_at__lte=now - timedelta(seconds=CLOSING_GRACE_SECONDS))


def _close_here(*, order_id: UUID) -> None:
    """Close a pending order and put its units back; do nothing if another step was faster."""
    if _step(_CLOSE, order_id):
        items = OrderItem.objects.filter(order_id=order_id).values_list("product_id", "quantity")
        stock.release(quantities=dict(items))
        for then in after_closing:  # robust: the order is closed anyway
            # by its name: Django logs that of what fails, and a partial has none
            transaction.on_commit(update_wrapper(partial(then, order_id=order_id), then), robust=True)


def _step(update: str, order_id: UUID) -> bool:
    changed = bool(send(Statement(update, [order_id]))[0])
    if changed:
        changes.announce(order_id)
    return changed


def _status(order_id: UUID) -> OrderStatus | None:
    value = Order.objects.filter(pk=order_id).values_list("status", flat=True).first()
    return None if value is None else OrderStatus(value)
