"""Providers of attempts, the rule for calling them, and the only record of each call."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from django.db import Error, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from idempotency.postgres.statements import UnitOfWork
from payments.channels import configured as channels
from payments.conf import orders
from payments.errors import ChannelOff, ChannelUnavailable, OtherMerchant, ProviderError
from payments.models import Attempt, Payment, ProviderCall
from payments.order_keys import order_of
from payments.providers.actions import NextAction
from payments.providers.base import Provider
from payments.providers.documents import must_be_storable

log = logging.getLogger(__name__)

ANSWER_MAX = 200  # characters, as the row has

_CALLS = frozenset({"create", "query", "capture", "close", "refund", "query_refund"})


def provider(account: str) -> Provider:
    """Return the provider of an account, or raise `ChannelUnavailable`."""
    try:
        return channels.current()[account]
    except KeyError:
        sentence = _("There is no payment channel %(account)s here: choose one of %(known)s.")
        known = ", ".join(sorted({one.channel for one in channels.current().values()})) or "-"
        raise ChannelUnavailable(sentence % {"account": account, "known": known}) from None


def provider_of(attempt: Attempt) -> Provider:
    """Return the provider at which an attempt was opened; its calls are recorded.

    Raises ChannelOff, OtherMerchant: nothing can be asked until it is configured again.
    """
    try:
        found = provider(attempt.account)
    except ChannelUnavailable:
        raise ChannelOff(f"the account {attempt.account} is not configured here") from None
    if found.merchant != attempt.merchant:
        raise OtherMerchant(f"the account {attempt.account} is configured for another merchant")
    return cast("Provider", _Recorded(found, attempt))


def may_be_paid(attempt: Attempt) -> bool:
    """Check if an attempt may still be opened: its order unpaid and open, its time not over.

    Not under the order's lock: `submission` closes again what was opened beside a closing.
    """
    payment = Payment.objects.get(pk=attempt.payment_id)
    if payment.paid_minor or attempt.expires_at <= timezone.now():
        return False
    return orders().on_payment(order_id=order_of(payment), event="payable", work=UnitOfWork())


def must_be_outside_transactions() -> None:
    """Refuse to call a provider inside a transaction: it takes seconds, with rows locked."""
    if transaction.get_connection().in_atomic_block:
        raise RuntimeError("a provider must not be called inside a transaction")


class _Recorded:
    """Provider whose calls are recorded; what cannot be written is logged and lost."""

    def __init__(self, provider: Provider, attempt: Attempt) -> None:
        self._provider, self._attempt = provider, attempt

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._provider, name)
        return partial(self._call, name, found) if name in _CALLS else found

    def _call(self, name: str, call: Callable[..., Any], /, **arguments: Any) -> Any:
        began, answer, failed = time.monotonic(), "error", True
        try:
            result = call(**arguments)
            for fact in getattr(result, "facts", ()):
                must_be_storable(fact)
            answer, failed = "opened" if isinstance(result, NextAction) else str(result.status), False
        except ProviderError as error:
            answer = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._record(name, answer, failed=failed, seconds=time.monotonic() - began)
        return result

    def _record(self, name: str, answer: str, *, failed: bool, seconds: float) -> None:
        said, took = answer.replace("\0", "")[:ANSWER_MAX], round(1000 * seconds)
        about = {"attempt": self._attempt, "method": name, "answer": said, "failed": failed, "milliseconds": took}
        try:
            ProviderCall.objects.create(**about)
        except Error:
            log.exception("The call %s about attempt %s is not recorded.", name, self._attempt.out_trade_no)
