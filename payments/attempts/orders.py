"""An order's payment, from the project's own code: begin it, and ask how far it is."""

from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from payments.attempts import asking, calling, closing
from payments.attempts.opening import open_attempt
from payments.attempts.submission import submit_attempt
from payments.conf import Payable, payable
from payments.errors import OrderNotPayable
from payments.models import Attempt, Payment
from payments.order_keys import payment_of
from payments.providers.actions import Payer
from payments.states import PaymentStatus


def start(order: Model, *, method: str, request: HttpRequest | None = None, openid: str = "") -> Attempt:
    """Have an order paid: get its live attempt by this method, or open one at the provider.

    Args:
        order: of `Payable.model`.
        method: channel and method, as ``channel.method``; a channel alone takes its first one.
        request: the shopper's, who may repeat it; its `REMOTE_ADDR` goes to a provider that needs it.
        openid: the wallet's id of the shopper, for a method that pays inside the wallet.

    Returns:
        The attempt: its `next_action_url` is where the shopper goes on. It is `uncertain` where the provider's
        answer is missing, and the timer finds out.

    Raises:
        OrderNotPayable: as `Payable.is_payable` says.
        OrderAlreadyPaid, AmountChanged, ChannelUnavailable, MethodUnavailable: refused; nothing was opened.
        TypeError, ValueError: of another model; an amount that is no int, or not above zero; a shopper without
            what the method needs.
        ProviderError: the provider refused, or cannot be reached; it may be called again.

    Transaction: NONE may be open; opens a short one that locks the order's row, then calls the provider.
    """
    calling.must_be_outside_transactions()
    payment_of(order)  # refuses a row of another model
    payer = Payer(openid=openid, client_ip=request.META["REMOTE_ADDR"] if request else "")
    attempt = _opened(order, method=method, payer=payer)
    if attempt.expires_at <= timezone.now():  # nobody can pay it, and the timer has not ended it yet
        end = partial(closing.close_attempt, attempt.pk)
        if request:
            asking.for_shopper(attempt.pk, end)
        else:
            end()
        attempt = _opened(order, method=method, payer=payer)
    submit_attempt(attempt.pk, payer=payer, by_shopper=request is not None)
    attempt.refresh_from_db()
    return attempt


def status(order: Model) -> PaymentStatus | None:
    """Return the status of an order's payment; None before the first attempt."""
    found = Payment.objects.filter(payment_of(order)).values_list("status", flat=True).first()
    return None if found is None else PaymentStatus(found)


def _opened(order: Model, *, method: str, payer: Payer) -> Attempt:
    """Get the order's live attempt or make one, with the order locked; raises as `start`."""
    project = payable()
    channel, _dot, way = str(method).partition(".")
    with transaction.atomic():
        locked = project.model._base_manager.select_for_update(no_key=True).get(pk=order.pk)
        if not project.is_payable(locked):
            raise OrderNotPayable(_("This order waits for no payment: look at its status."))
        return open_attempt(
            order_id=locked.pk,
            owner_id=_owner_id(project, locked),
            amount_minor=project.amount(locked),
            currency=project.currency,
            channel=channel,
            description=_described(project, locked),
            expires_at=timezone.now() + project.lives,
            account=project.account(locked, channel),
            method=way or None,
            payer=payer,
        )


def _owner_id(project: Payable, order: Model) -> Any:
    owner = project.owner(order)
    if owner is None or getattr(owner, "is_anonymous", False):
        return None
    if not isinstance(owner, get_user_model()):
        raise TypeError(f"{type(project).__name__}.owner must return a user or None, not {type(owner).__name__}.")
    return owner.pk


def _described(project: Payable, order: Model) -> str:
    text: object = project.describe(order)
    if not isinstance(text, str | Promise):
        raise TypeError(f"{type(project).__name__}.describe must return a text, not {text!r}.")
    return str(text)[: Attempt._meta.get_field("description").max_length]
