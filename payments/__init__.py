"""Payments at any provider: one an order, settled from facts, reconciled with bills.

The public names. They are imported on first use, so that naming the app in `INSTALLED_APPS` needs no Django yet;
everything else is private.
"""

from typing import TYPE_CHECKING

from idempotency.extras import on_first_use

if TYPE_CHECKING:
    from payments.attempts.closing import CloseResult, close_payment, query_attempt
    from payments.attempts.opening import open_attempt
    from payments.attempts.orders import start, status
    from payments.attempts.submission import submit_attempt
    from payments.conf import Payable
    from payments.errors import OutcomeUnknown, PaymentRefused, ProviderError
    from payments.providers.base import Fact, Provider
    from payments.refunds.orders import refund
    from payments.settlement.settle import settle
    from payments.states import AttemptStatus, PaymentStatus, RefundStatus

__all__ = [
    "AttemptStatus",
    "CloseResult",
    "Fact",
    "OutcomeUnknown",
    "Payable",
    "PaymentRefused",
    "PaymentStatus",
    "Provider",
    "ProviderError",
    "RefundStatus",
    "close_payment",
    "open_attempt",
    "query_attempt",
    "refund",
    "settle",
    "start",
    "status",
    "submit_attempt",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "attempts.closing": ["CloseResult", "close_payment", "query_attempt"],
        "attempts.opening": ["open_attempt"],
        "attempts.orders": ["start", "status"],
        "attempts.submission": ["submit_attempt"],
        "conf": ["Payable"],
        "errors": ["OutcomeUnknown", "PaymentRefused", "ProviderError"],
        "providers.base": ["Fact", "Provider"],
        "refunds.orders": ["refund"],
        "settlement.settle": ["settle"],
        "states": ["AttemptStatus", "PaymentStatus", "RefundStatus"],
    },
)
