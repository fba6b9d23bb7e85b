"""PayPal by its Orders API, version 2."""

from payments.providers.paypal import settings
from payments.providers.paypal.client import PayPalOrders
from payments.providers.paypal.webhook import HEADERS
from payments.providers.plugin import Capability, Plugin, by_status

PLUGIN = Plugin(
    label="PayPal",
    build=PayPalOrders,
    capabilities=frozenset(Capability),
    required=("API_URL", "CLIENT_ID", "MERCHANT_ID", "WEBHOOK_ID", "CERT_FILE"),
    optional=("CLIENT_SECRET", "CLIENT_SECRET_FILE"),
    parts=(settings.api_url, settings.client_secret, settings.certificates),
    # any 2xx acknowledges, anything else is sent again, up to 25 times over three days (Source: PayPal, "Integrate
    # webhooks", read 2026-11)
    acknowledge=by_status,
    headers=HEADERS,
    nonce_header="Paypal-Transmission-Sig",
    # of orders and captures (Source: Orders v2, "payer", "payment_source", "shipping"; read 2026-11)
    payer_names=frozenset({"payer", "payment_source", "shipping", "email_address", "payer_id"}),
    private_files=("CLIENT_SECRET_FILE",),
    certificate_files=("CERT_FILE",),
)
