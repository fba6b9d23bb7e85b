"""The provider of an attempt, the rule for calling it, and a check that its order still waits for money."""

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from idempotency.postgres.unit import UnitOfWork
from payments.attempts.recording import recorded
from payments.channels import configured as channels
from payments.conf import orders
from payments.errors import ChannelOff, ChannelUnavailable, OtherMerchant
from payments.models import Attempt, Payment
from payments.order_keys import order_of
from payments.providers.base import Provider


def provider(account: str) -> Provider:
    """Return the provider of an account, or raise `ChannelUnavailable`."""
    try:
        return channels.current()[account]
    except KeyError:
        sentence = _("There is no payment channel %(account)s here: choose one of %(known)s.")
        known = ", ".join(sorted({one.channel for one in channels.current().values()})) or "-"
        raise ChannelUnavailable(sentence % {"account": account, "known": known}) from None


def provider_of(attempt: Attempt) -> Provider:
    """Return the provider at which an attempt was opened, and where its money is; its calls are recorded.

    Raises ChannelOff, OtherMerchant: nothing can be asked until it is configured again.
    """
    try:
        found = provider(attempt.account)
    except ChannelUnavailable:
        raise ChannelOff(f"the account {attempt.account} is not configured here") from None
    if found.merchant != attempt.merchant:
        raise OtherMerchant(f"the account {attempt.account} is configured for another merchant")
    return recorded(found, attempt)


def may_be_paid(attempt: Attempt) -> bool:
    """Check if an attempt may still be opened: its order unpaid and open, its time not over.

    Not under the order's lock: closing the order closes its live attempts afterwards, and `submission` closes
    again what was opened in between.
    """
    payment = Payment.objects.get(pk=attempt.payment_id)
    if payment.paid_minor or attempt.expires_at <= timezone.now():
        return False
    return orders().on_payment(order_id=order_of(payment), event="payable", work=UnitOfWork())


def must_be_outside_transactions() -> None:
    """Refuse to call a provider inside a transaction: it may take seconds, with our rows locked."""
    if transaction.get_connection().in_atomic_block:
        raise RuntimeError("a provider must not be called inside a transaction")
