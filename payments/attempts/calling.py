"""Which provider an attempt belongs to, and the rule for calling it."""

from django.db import transaction

from payments.attempts.recording import recorded
from payments.channels import configured as channels
from payments.errors import ChannelOff, ChannelUnavailable
from payments.models import Attempt
from payments.providers.base import Provider


def provider(account: str) -> Provider:
    """Return the provider of an account.

    Raises:
        ChannelUnavailable: it is not configured here.
    """
    try:
        return channels.current()[account]
    except KeyError:
        raise ChannelUnavailable from None


def provider_of(attempt: Attempt) -> Provider:
    """Return the provider at which an attempt was opened, and where its money is; its calls are recorded.

    Raises:
        ChannelOff: nothing can be asked until it is on again.
    """
    try:
        return recorded(provider(attempt.account), attempt)
    except ChannelUnavailable:
        raise ChannelOff(f"the account {attempt.account} is not configured here") from None


def must_be_outside_transactions() -> None:
    """Refuse to call a provider inside a transaction: it may take seconds, with our rows locked.

    Raises:
        RuntimeError: a transaction is open.
    """
    if transaction.get_connection().in_atomic_block:
        raise RuntimeError("a provider must not be called inside a transaction")
