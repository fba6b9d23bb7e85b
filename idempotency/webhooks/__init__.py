"""Webhooks of any sender: verified, stored as they arrived, and applied once.

Never: a row for what is not genuine, or an outbound call but for a certificate of PayPal's.
Views, schedulers, the admin and commands come in; the names of `__all__` are public. They are imported on first
use, because a verifier alone needs no Django.
"""

from typing import TYPE_CHECKING

from idempotency.extras import on_first_use

if TYPE_CHECKING:
    from idempotency.webhooks.applying import apply_stored_events, replay
    from idempotency.webhooks.event import Event, NotGenuine, NotReplayable, Unverifiable
    from idempotency.webhooks.intake import webhook
    from idempotency.webhooks.paypal import PayPal
    from idempotency.webhooks.verifiers import GitHub, Hmac, Shopify, Slack, StandardWebhooks, Stripe, Verifier

__all__ = [
    "Event",
    "GitHub",
    "Hmac",
    "NotGenuine",
    "NotReplayable",
    "PayPal",
    "Shopify",
    "Slack",
    "StandardWebhooks",
    "Stripe",
    "Unverifiable",
    "Verifier",
    "apply_stored_events",
    "replay",
    "webhook",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "applying": ["apply_stored_events", "replay"],
        "event": ["Event", "NotGenuine", "NotReplayable", "Unverifiable"],
        "intake": ["webhook"],
        "paypal": ["PayPal"],
        "verifiers": ["GitHub", "Hmac", "Shopify", "Slack", "StandardWebhooks", "Stripe", "Verifier"],
    },
)
