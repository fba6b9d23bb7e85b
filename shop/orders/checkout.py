"""From an order to the place where the shopper pays: the one way that the API and the pages both take.

Commits the intent (order still payable, our own number for the attempt) first, then calls the provider with no
transaction open. Never changes money state; that is `payments.attempts.services`' and, through it, the provider's
word.
"""

import logging
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from payments.attempts import asking, services
from payments.attempts import opening as attempts
from payments.errors import PaymentRefused, ProviderError
from payments.models import Attempt, Payment
from payments.providers.base import NOBODY, Payer, PayMethod, Provider
from payments.states import AttemptStatus
from shop.errors import OrderClosed, OrderPaid, from_payment, from_provider
from shop.models import Order, OrderStatus
from shop.orders import placing as orders
from shop.orders.paid import known_paid, remember_paid

log = logging.getLogger(__name__)

# what a provider can say something about: it may have heard of these
ASKED = (AttemptStatus.PENDING, AttemptStatus.UNCERTAIN)

NAME_BYTES = 100  # of UTF-8; the narrowest channel takes 127 for the whole description


def start_payment(
    *,
    order_id: UUID,
    user_id: int,
    channel: str,
    method: PayMethod | None = None,
    payer: Payer = NOBODY,
    resumed: bool = False,
    was_uncertain: bool = False,
) -> Payment:
    """Open an attempt for the order, or go on with the live one of the same channel and method.

    Args:
        order_id: which order.
        user_id: whose.
        channel: ``wechat``, ``alipay`` or ``stripe``.
        method: one of the channel's; None is its first.
        payer: what the method must know of the shopper.
        resumed: an earlier run for the same intent was cut off or ended uncertain; it may have been paid since,
            which then is its outcome and no refusal.
        was_uncertain: its caller was told so. Then its attempt has been made, and whatever became of that, this
            intent makes no second one.

    Returns:
        The payment; `uncertain` where the provider's answer is missing.

    Raises:
        Problem: `order_not_found`, `order_paid`, `order_closed`, `channel_unavailable`, `method_unavailable`,
            `provider_refused`, `provider_unavailable`.

    Transaction: NONE may be open; opens a short one of its own, then calls the provider. May run again.
    """
    if not resumed and known_paid(order_id=order_id, user_id=user_id):
        raise OrderPaid
    try:
        if was_uncertain:
            attempt_id = _opened(order_id=order_id, user_id=user_id, channel=channel, method=method)
        else:
            attempt_id = _open(order_id=order_id, user_id=user_id, channel=channel, method=method, payer=payer)
        if attempt_id is None:
            return Payment.objects.get(order_id=order_id)
    except (OrderPaid, OrderClosed) as refused:
        if isinstance(refused, OrderPaid):
            remember_paid(order_id=order_id, user_id=user_id)
        payment = Payment.objects.filter(order_id=order_id, attempts__channel=channel).first()
        if not resumed or payment is None:
            raise
        return payment
    try:
        return services.submit_attempt(attempt_id, payer=payer, by_shopper=True)
    except ProviderError as error:
        log.warning("order %s: %s did not open a payment: %s", order_id.hex, channel, error)
        raise from_provider(error) from error


def has_method(*, channel: str, method: PayMethod) -> bool:
    """Whether shoppers can pay by this way here."""
    found = _provider(channel)
    return found is not None and method in found.methods


def takes(*, channel: str, currency: str) -> bool:
    """Whether an order in this currency can be paid by the channel here."""
    found = _provider(channel)
    return found is not None and currency in found.currencies


def ask_provider(*, order_id: UUID) -> bool | None:
    """Let the providers say what became of the order's open attempts, now; whoever asks is not believed.

    Returns:
        Whether all that were asked answered; None where nobody was, see `payments.attempts.asking`.

    Transaction: NONE may be open; one call to a provider for every open attempt, at most one a channel. A provider
    that does not answer changes nothing: the timer asks again.
    """
    open_attempts = Attempt.objects.filter(payment__order_id=order_id, status__in=ASKED)
    answers = []
    for attempt_id in list(open_attempts.values_list("id", flat=True)):
        try:
            if asking.for_shopper(attempt_id, partial(services.query_attempt, attempt_id)) is not None:
                answers.append(True)
        except ProviderError as error:
            answers.append(False)
            log.warning("order %s: no answer about attempt %s: %s", order_id.hex, attempt_id.hex, error)
    return all(answers) if answers else None


def is_uncertain(document: dict[str, Any], *, channel: str, method: PayMethod | None) -> bool:
    """Whether the outcome of the newest attempt by this way is not known; other attempts answer for themselves.

    Args:
        document: as `payments.api.serializers.represent_payment` gives it.
        channel: ``wechat``, ``alipay`` or ``stripe``.
        method: one of the channel's; None is its first.
    """
    found = _provider(channel)
    way = method or (found and found.methods[0])
    tried = [one["status"] for one in document["attempts"] if (one["channel"], one["method"]) == (channel, way)]
    return tried[-1:] == ["uncertain"]


def is_known(subject: str) -> bool:
    """Whether all that was asked of an order has its outcome: no attempt in doubt, no closing begun and not ended.

    Not where it was paid while it was being closed: that refuses the cancellation, and a refusal is kept by the
    retry that hears it, so that all later ones hear the same bytes.

    Args:
        subject: of a ledger entry, ``order:`` and 32 hexadecimal characters; of any other nothing is known here.
    """
    kind, _, number = subject.partition(":")
    order = Order.objects.filter(pk=UUID(number)).first() if kind == "order" else None
    if order is None:
        return False
    if order.status == OrderStatus.CLOSED:
        return True
    doubtful = Attempt.objects.filter(payment__order_id=order.pk, status=AttemptStatus.UNCERTAIN)
    return order.closing_at is None and not doubtful.exists()


def _provider(channel: str) -> Provider | None:
    """None where the channel is not configured here, or was switched off since."""
    try:
        return services.provider(channel)
    except PaymentRefused:
        return None


def _open(*, order_id: UUID, user_id: int, channel: str, method: PayMethod | None, payer: Payer) -> UUID:
    with transaction.atomic():
        order = orders.lock_payable(order_id=order_id, user_id=user_id)
        first = not orders.payment_ids(order_ids=[order_id])
        try:
            attempt = attempts.open_attempt(
                order_id=order.id,
                owner_id=user_id,
                amount_minor=order.total_minor,
                currency=order.currency,
                channel=channel,
                description=describe(order),
                expires_at=order.expires_at,
                method=method,
                payer=payer,
            )
        except PaymentRefused as refused:
            raise from_payment(refused) from refused
        if first:
            orders.record_payment_opened(order=order)
    return attempt.id


def _opened(*, order_id: UUID, user_id: int, channel: str, method: PayMethod | None) -> UUID | None:
    """The live attempt, if that is what became of the one that was opened."""
    with transaction.atomic():
        orders.lock_payable(order_id=order_id, user_id=user_id)
        try:
            attempt = attempts.live_attempt(order_id=order_id, channel=channel, method=method)
        except PaymentRefused as refused:
            raise from_payment(refused) from refused
    return None if attempt is None else attempt.id


def describe(order: Order) -> str:
    """What the shopper's wallet shows: the first item's name and how many units there are in all."""
    items = order.lines
    units = sum(item.quantity for item in items)
    name = items[0].name.encode()[:NAME_BYTES].decode(errors="ignore")
    if units == 1:
        return name
    return f"{name} (×{units})" if len(items) == 1 else f"{name} … (×{units})"
