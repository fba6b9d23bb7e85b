"""Everything that can go wrong around a payment, as one exception tree.

`ProviderError` and its children are raised by `payments.providers` (no Django there) and say how much is
known about what the provider did; that knowledge, not the HTTP status, decides what may be done next:

==================== ======================================== =========================================
exception            what is known                            what may follow
==================== ======================================== =========================================
`ProviderRejected`   the provider answered, signed: it did    tell the caller; nothing to clean up
                     nothing
`ProviderUnavailable` the request did not reach the provider  try again later, same number
                     (connection refused, DNS, pool full,
                     no room within our own limits), or it
                     was turned away unread: too many calls,
                     or a key of ours that it does not take
`OutcomeUnknown`     the request left; the answer is missing, ask (`query`) under the same number; never
                     a 5xx, unsigned, unreadable, compressed  a new number
                     or about something else, tells that the
                     work goes on, or the question about an
                     earlier command failed
`SignatureInvalid`   the bytes are not the provider's         nothing; the bytes are dropped
`NotificationMalformed` signed or not, the bytes cannot be    400 to the sender
                     read
==================== ======================================== =========================================

`PaymentRefused` and its children are business refusals raised by `payments.attempts.services`; each carries the
`code` that the API answers with.
"""


class ProviderError(Exception):
    """A payment provider did not do what it was asked to."""


class ProviderRejected(ProviderError):
    """The provider refused, in a signed answer: nothing happened on its side.

    Args:
        code: the provider's own error code, such as ``ORDERPAID`` or ``ACQ.TRADE_NOT_EXIST``.
        message: the provider's sentence for a developer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class ProviderUnavailable(ProviderError):
    """The request never reached the provider, or was turned away unread: it said nothing about what was asked."""


class ChannelOff(ProviderUnavailable):
    """The channel of something that was begun is not configured here any more; it waits until it is again."""


class NoRoom(ProviderUnavailable):
    """Our own limits had no room for the call; nothing was sent."""


class OutcomeUnknown(ProviderError):
    """The request left this machine and no trustworthy answer came back."""


class SignatureInvalid(ProviderError):
    """A signature is missing, does not verify, is stale, or names a key we do not hold."""


class NotificationMalformed(ProviderError):
    """A notification's bytes cannot be decoded."""


class PaymentRefused(Exception):
    """The request is understood and refused; the state did not change."""

    code = "payment_refused"


class OrderAlreadyPaid(PaymentRefused):
    """The order is already paid."""

    code = "order_paid"


class RefundExceedsPaid(PaymentRefused):
    """The refund is larger than what was captured and not yet refunded."""

    code = "refund_exceeds_paid"


class ChannelUnavailable(PaymentRefused):
    """This payment channel is not configured here."""

    code = "channel_unavailable"


class MethodUnavailable(PaymentRefused):
    """This payment channel has no such method."""

    code = "method_unavailable"
