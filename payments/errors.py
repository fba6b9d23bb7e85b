"""Exceptions around a payment, as one tree.

`ProviderError` and its children are raised by `payments.providers` (no Django there). What is known about the
provider's side, not the HTTP status, decides what may follow:

======================= ================================================ =================================
exception               what is known                                    what may follow
======================= ================================================ =================================
`ProviderRejected`      answered, signed: it did nothing                 answer the caller; no clean-up
`ProviderUnavailable`   not reached (refused, DNS, pool full, no room    try again later, same number
                        within our own limits), or turned away unread
                        (too many calls, a key that it does not take)
`OutcomeUnknown`        the request left; the answer is missing, 5xx,    ask (`query`) under the same
                        unsigned, unreadable, compressed, about          number; never a new number
                        something else or "work goes on", or the
                        question about an earlier command failed
`SignatureInvalid`      the bytes are not the provider's                 nothing; the bytes are dropped
`NotificationMalformed` the bytes cannot be read, signed or not          400 to the sender
======================= ================================================ =================================

`PaymentRefused` and its children are business refusals of `payments.attempts`; each carries the `code`
that the API answers with.
"""


class ProviderError(Exception):
    """A provider did not do what was asked."""


class ProviderRejected(ProviderError):
    """Refusal in a signed answer: nothing happened at the provider.

    Args:
        code: the provider's own error code, such as ``ORDERPAID`` or ``ACQ.TRADE_NOT_EXIST``.
        message: the provider's sentence for a developer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # with all of them, an error travels between processes
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ProviderUnavailable(ProviderError):
    """Request that never reached the provider, or was turned away unread."""


class ChannelOff(ProviderUnavailable):
    """Channel of open work that is no longer configured; the work waits until it is."""


class OtherMerchant(ChannelOff):
    """Account of open work that is another merchant's by now, and knows nothing of it."""


class NoRoom(ProviderUnavailable):
    """Limits of our own had no room for the call; nothing was sent."""


class OutcomeUnknown(ProviderError):
    """Request that left this machine and got no trustworthy answer."""


class SignatureInvalid(ProviderError):
    """Signature that is missing, wrong, stale, or by a key we do not hold."""


class NotificationMalformed(ProviderError):
    """Notification whose bytes cannot be decoded."""


class PaymentRefused(Exception):
    """Refusal of a request that was understood; the state did not change.

    Its sentence says what is wrong, and what the caller can do, in the caller's language.
    """

    code = "payment_refused"

    def __init_subclass__(cls, *, code: str = "") -> None:
        cls.code = code or cls.code


class OrderAlreadyPaid(PaymentRefused, code="order_paid"):
    """Order that is already paid."""


class AmountChanged(PaymentRefused, code="amount_changed"):
    """Order whose amount is no more the one that its first attempt fixed."""


class OrderNotPayable(PaymentRefused, code="order_not_payable"):
    """Order that waits for no money (any more)."""


class RefundExceedsPaid(PaymentRefused, code="refund_exceeds_paid"):
    """Refund larger than what was captured and neither refunded yet nor taken by a dispute."""


class RefundUnavailable(PaymentRefused, code="refund_refused"):
    """Refund that the channel of the charge does not make."""


class ChannelUnavailable(PaymentRefused, code="channel_unavailable"):
    """Payment channel that is not configured here."""


class MethodUnavailable(PaymentRefused, code="method_unavailable"):
    """Method that this payment channel does not have."""
