"""Stripe, by its own library."""

from dataclasses import replace

from payments.providers.plugin import Acknowledgement, Capability, Plugin, Refusal, by_status
from payments.providers.stripe import settings
from payments.providers.stripe.client import StripeIntents


def acknowledge(refused: Refusal | None) -> Acknowledgement:
    """Answer a notification; the reason is for the dashboard.

    Source: Stripe, "Receive Stripe events in your webhook endpoint": any 2xx acknowledges, anything else is sent
    again for up to three days (read 2026-11).
    """
    if refused is None:
        return Acknowledgement(status=200, body="received")
    return by_status(replace(refused, status=400) if refused.status == 401 else refused)


PLUGIN = Plugin(
    label="Stripe",
    build=StripeIntents,
    capabilities=frozenset(Capability),
    required=("API_URL",),
    optional=("SECRET_KEY", "SECRET_KEY_FILE", "WEBHOOK_SECRET", "WEBHOOK_SECRET_FILE", "ACCOUNT", "METHOD"),
    parts=(settings.api_url, settings.secret_key, settings.webhook_secrets, settings.method),
    acknowledge=acknowledge,
    headers=("Stripe-Signature", "Content-Type"),
    # of charges and intents (Source: "Event object", "Charge object"; read 2026-11)
    payer_names=frozenset(
        {
            *("billing_details", "customer", "customer_details", "customer_email", "receipt_email", "shipping"),
            *("source", "payment_method", "payment_method_details", "payment_method_data", "client_secret", "ip"),
        }
    ),
    charges_again=True,
    private_files=("SECRET_KEY_FILE", "WEBHOOK_SECRET_FILE"),
    live_key=settings.live_key,
)
