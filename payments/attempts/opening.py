"""Commit an attempt and its number, before a provider is asked to open a trade."""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from payments.attempts import calling
from payments.channels import accounts
from payments.errors import AmountChanged, ChannelUnavailable, MethodUnavailable, OrderAlreadyPaid
from payments.models import Attempt, Payment
from payments.money import minor
from payments.order_keys import beside_former, of_order, order_columns
from payments.providers.actions import NOBODY, Payer, needed_of
from payments.providers.base import Provider
from payments.settlement.backoff import after
from payments.states import LIVE_ATTEMPTS


def open_attempt(
    *,
    order_id: object,
    owner_id: int | None,
    amount_minor: int,
    currency: str,
    channel: str,
    description: str,
    expires_at: datetime,
    account: str | None = None,
    method: str | None = None,
    payer: Payer = NOBODY,
) -> Attempt:
    """Get the live attempt of this order by this channel and method, or make one.

    Args:
        order_id: the order's primary key, a UUID, number or text; it has one payment.
        owner_id: the user who may see the payment; None: staff alone.
        amount_minor: what is to be paid, in minor units.
        currency: ISO 4217.
        channel: a configured one.
        description: what the shopper's wallet shows, at most 127 bytes.
        expires_at: aware; the provider takes no money after it.
        account: of the channel; None: the one named like it, or its only one. A live attempt stays at its own.
        method: one of the channel's; None is its first.
        payer: what the method must know of the shopper; stored until the attempt is open.

    Raises:
        OrderAlreadyPaid: money has been credited.
        AmountChanged: an earlier attempt has fixed another amount or currency.
        ChannelUnavailable: the channel has no such account, or that takes another currency.
        MethodUnavailable: the channel has no such method.
        TypeError, ValueError: the amount is no int, or not above zero; `payer` lacks what the method needs.

    Transaction: needs the caller's, with the order's row locked, so that an order that is being closed gets no
    new attempt. Only inserts here; payment rows are not locked. No network.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("open_attempt needs a transaction")
    minor(amount_minor)
    account = account or accounts.chosen(channel)
    found = _provider(account, channel=channel, currency=currency)
    method = _method_of(found, method)
    payment = _payment_of(order_id, owner_id=owner_id, amount_minor=amount_minor, currency=currency)
    if (live := _live(payment.attempts.all(), channel=channel, method=method)) is not None:
        return live
    return Attempt.objects.create(
        payment=payment,
        channel=channel,
        account_key=accounts.key_of(account, channel),
        merchant=found.merchant,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        description=description,
        method=method,
        payer=needed_of(method, payer),
        expires_at=expires_at,
        next_query_at=after(query_count=0),
    )


def live_attempt(*, order_id: object, channel: str, method: str | None) -> Attempt | None:
    """Find the order's attempt by this channel and method, its first by default, that is live.

    Raises as `open_attempt`.
    """
    chosen = _method_of(calling.provider(accounts.chosen(channel)), method)
    attempts = Attempt.objects.filter(payment__in=Payment.objects.filter(of_order(order_id)))
    return _live(attempts, channel=channel, method=chosen)


def _provider(account: str, *, channel: str, currency: str) -> Provider:
    """Return the account's provider for channel and currency. Raises ChannelUnavailable."""
    found = calling.provider(account)
    if found.channel != channel:
        raise ChannelUnavailable(
            _("The account %(account)s is of the payment channel %(theirs)s, not of %(channel)s.")
            % {"account": account, "theirs": found.channel, "channel": channel}
        )
    if currency not in found.currencies:
        raise ChannelUnavailable(
            _("This payment channel takes no %(currency)s: choose another.") % {"currency": currency}
        )
    return found


def _payment_of(order_id: object, *, owner_id: int | None, amount_minor: int, currency: str) -> Payment:
    """Get or insert the order's one payment. Raises as `open_attempt` if it takes no more."""
    wanted = {"owner_id": owner_id, "amount_minor": amount_minor, "currency": currency}
    columns, found = order_columns(order_id), Payment.objects.filter(of_order(order_id))
    # an insert that loses to a concurrent duplicate leaves the committed payment to be used
    Payment.objects.bulk_create([Payment(**columns, **wanted)], ignore_conflicts=True)
    payment = found.first()
    if payment is None:  # an order of a former model has its number
        Payment.objects.bulk_create([Payment(**beside_former(columns), **wanted)], ignore_conflicts=True)
        payment = found.get()
    if payment.paid_minor:
        raise OrderAlreadyPaid(_("This order is already paid: nothing is left to pay."))
    if (payment.amount_minor, payment.currency) != (amount_minor, currency):
        raise AmountChanged(
            _("The order's amount is no longer the one of its first attempt: restore it, or make another order.")
        )
    return payment


def _live(attempts: QuerySet[Attempt], *, channel: str, method: str) -> Attempt | None:
    return attempts.filter(channel=channel, method=method, status__in=LIVE_ATTEMPTS).first()


def _method_of(provider: Provider, wanted: str | None) -> str:
    method = str(wanted or provider.methods[0])
    if method not in provider.methods:
        raise MethodUnavailable(
            _("This payment channel has no method %(method)s: choose one of %(known)s.")
            % {"method": method, "known": ", ".join(provider.methods)}
        )
    return method
