"""Checkout: from an order to the provider's QR code or page, for API and pages alike.

Commits the intent first (order still payable, our number for the attempt), then calls the provider with no
transaction open. Never changes money state: `payments.attempts` does, by the provider's answers.
"""

import logging
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils.translation import override

from idempotency.redis.paid_marker import PaidMarker
from payments.attempts import asking, calling, closing, submission
from payments.attempts import opening as attempts
from payments.errors import PaymentRefused, ProviderError
from payments.models import Attempt, Payment
from payments.providers.actions import NOBODY, Payer
from payments.providers.base import Provider
from payments.settlement.state import as_id
from payments.states import AttemptStatus
from shop.errors import OrderClosed, OrderPaid, from_payment, from_provider
from shop.models import Order, OrderStatus
from shop.orders import placing as orders

log = logging.getLogger(__name__)

# Only a hint, put after the database has refused once: a repeat is refused without asking it. It names the owner,
# so another user still hears 404, and cannot become untrue: a paid order never becomes payable again.
_PAID = PaidMarker(kind="order-paid")

# a provider may know attempts in these states
QUERIED = (AttemptStatus.PENDING, AttemptStatus.UNCERTAIN)

NAME_BYTES = 96  # of UTF-8; the narrowest channel takes 127 for the whole description


def start_payment(
    *,
    order_id: UUID,
    user_id: int,
    channel: str,
    method: str | None = None,
    payer: Payer = NOBODY,
    resumed: bool = False,
    was_uncertain: bool = False,
) -> Payment:
    """Open an attempt for the order, or continue the live one of the same channel and method.

    Args:
        method: one of the channel's; None is its first.
        payer: the shopper's details that the method needs.
        resumed: an earlier run for this intent was cut off or ended uncertain; a payment since then is its outcome
            and no refusal.
        was_uncertain: the caller got that answer, so the attempt was made: this intent makes no second one.

    Returns:
        The payment; `uncertain` where the provider's answer is missing.

    Raises:
        Problem: `order_not_found`, `order_paid`, `order_closed`, `channel_unavailable`, `method_unavailable`,
            `provider_refused`, `provider_unavailable`.

    Transaction: NONE may be open; opens a short one of its own, then calls the provider. May run again.
    """
    if not resumed and _PAID.get(order_id.hex) == str(user_id):
        raise OrderPaid
    try:
        with transaction.atomic():
            order = orders.lock_payable(order_id=order_id, user_id=user_id)
            if was_uncertain:
                attempt = attempts.live_attempt(order_id=order_id, channel=channel, method=method)
            else:
                attempt = _open(order, channel=channel, method=method, payer=payer)
        if attempt is None:
            return Payment.objects.get(order_id=order_id)
    except PaymentRefused as refused:
        raise from_payment(refused) from refused
    except (OrderPaid, OrderClosed) as refused:
        if isinstance(refused, OrderPaid):
            _PAID.put(order_id.hex, str(user_id))
        payments = Payment.objects.filter(order_id=order_id, attempts__channel=channel)
        if resumed and (outcome := payments.first()) is not None:
            return outcome
        raise
    try:
        return submission.submit_attempt(attempt.id, payer=payer, by_shopper=True)
    except ProviderError as error:
        log.warning("order %s: %s did not open a payment: %s", order_id.hex, channel, error)
        raise from_provider(error) from error


def has_method(*, channel: str, method: str) -> bool:
    found = _provider(channel)
    return found is not None and method in found.methods


def takes(*, channel: str, currency: str | None) -> bool:
    """Return whether a channel, not a further account of it, is set up and takes the currency."""
    found = _provider(channel)
    return found is not None and found.channel == channel and currency in {None, *found.currencies}


def ask_provider(*, order_id: UUID) -> bool | None:
    """Query the providers about the order's open attempts, whatever the caller says.

    Returns:
        Whether all of them answered; None where none was queried, see `payments.attempts.asking`.

    Transaction: NONE may be open; one call to a provider for each open attempt, at most one a channel. A provider
        that does not answer changes nothing: the timer queries again.
    """
    open_attempts = Attempt.objects.filter(payment__order_id=order_id, status__in=QUERIED)
    answers = []
    for attempt_id in list(open_attempts.values_list("id", flat=True)):
        try:
            if asking.for_shopper(attempt_id, partial(closing.query_attempt, attempt_id)) is not None:
                answers.append(True)
        except ProviderError as error:
            answers.append(False)
            log.warning("order %s: no answer about attempt %s: %s", order_id.hex, attempt_id.hex, error)
    return all(answers) if answers else None


def is_uncertain(document: dict[str, Any], *, channel: str, method: str | None) -> bool:
    """Return whether the newest attempt by this channel and method has an unknown outcome.

    `document` is `payments.api.serializers.PaymentSerializer`'s; no method is the channel's first.
    """
    found = _provider(channel)
    way = method or (found and found.methods[0])
    tried = [one["status"] for one in document["attempts"] if (one["channel"], one["method"]) == (channel, way)]
    return tried[-1:] == ["uncertain"]


def is_known(subject: str) -> bool:
    """Return whether every call about an order has its outcome.

    No attempt is uncertain and no closing unfinished. False where it was paid while it was being closed: that
    refuses the cancellation, and the retry that gets the refusal stores it, so that all later ones get the same
    bytes. A `subject` other than ``order:`` and 32 hexadecimal characters is unknown here.
    """
    kind, _, number = subject.partition(":")
    order = Order.objects.filter(pk=key).first() if kind == "order" and (key := as_id(number)) else None
    if order is None:
        return False
    if order.status == OrderStatus.CLOSED:
        return True
    doubtful = Attempt.objects.filter(payment__order_id=order.pk, status=AttemptStatus.UNCERTAIN)
    return order.closing_at is None and not doubtful.exists()


def describe(order: Order) -> str:
    """Describe the order for the wallet: title and number, in the language it was ordered in."""
    name = order.lines[0].name.encode()[:NAME_BYTES].decode(errors="ignore")
    with override(order.language or settings.LANGUAGE_CODE):
        return f"{order.title(name)} · {order.short_number}"


def _provider(channel: str) -> Provider | None:
    try:
        return calling.provider(channel)
    except PaymentRefused:
        return None


def _open(order: Order, *, channel: str, method: str | None, payer: Payer) -> Attempt:
    first = not orders.payment_ids(order_ids=[order.id])
    attempt = attempts.open_attempt(
        order_id=order.id,
        owner_id=order.user_id,
        amount_minor=order.total_minor,
        currency=order.currency,
        channel=channel,
        description=describe(order),
        expires_at=order.expires_at,
        method=method,
        payer=payer,
    )
    if first:
        orders.record_payment_opened(order=order)
    return attempt
