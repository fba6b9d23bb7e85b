"""Providers: one merchant account of one channel, bytes and settings in, frozen facts out.

No Django, no state, no retries. Anyone above may come in, by `base` and `registry`; another package's plug-in by
the names here, which are public.
"""

from idempotency.webhooks.verifiers import Hmac, Verifier
from payments.errors import (
    NotificationMalformed,
    OutcomeUnknown,
    ProviderRejected,
    ProviderUnavailable,
    SignatureInvalid,
)
from payments.providers.account import Account, Opening, Refunding
from payments.providers.actions import NextAction, NextActionType, Payer, PayMethod, Renderer
from payments.providers.authenticity import lower_case, must_be_fresh, readable
from payments.providers.base import (
    BillLine,
    Fact,
    FactKind,
    Notice,
    Provider,
    RefundResult,
    RefundStatus,
    Trade,
    TradeStatus,
)
from payments.providers.disputes import Dispute, DisputeStatus
from payments.providers.documents import amount_of, text_of
from payments.providers.plugin import Acknowledgement, Capability, Plugin, Refusal
from payments.providers.settings_fields import ConfigError, Settings
from payments.providers.transport import Answer, reading

__all__ = [
    "Account",
    "Acknowledgement",
    "Answer",
    "BillLine",
    "Capability",
    "ConfigError",
    "Dispute",
    "DisputeStatus",
    "Fact",
    "FactKind",
    "Hmac",
    "NextAction",
    "NextActionType",
    "Notice",
    "NotificationMalformed",
    "Opening",
    "OutcomeUnknown",
    "PayMethod",
    "Payer",
    "Plugin",
    "Provider",
    "ProviderRejected",
    "ProviderUnavailable",
    "RefundResult",
    "RefundStatus",
    "Refunding",
    "Refusal",
    "Renderer",
    "Settings",
    "SignatureInvalid",
    "Trade",
    "TradeStatus",
    "Verifier",
    "amount_of",
    "lower_case",
    "must_be_fresh",
    "readable",
    "reading",
    "text_of",
]
