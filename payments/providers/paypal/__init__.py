"""PayPal by its Orders API, version 2."""

from payments.providers.paypal import settings
from payments.providers.paypal.webhook import HEADERS
from payments.providers.plugin import SOON, Acknowledgement, Plugin, Refusal


def acknowledge(refused: Refusal | None) -> Acknowledgement:
    """Answer a notification.

    Source: PayPal, "Integrate webhooks": any 2xx acknowledges, anything else is sent again, up to 25 times over
    three days (read 2026-11).
    """
    if refused is None:
        return Acknowledgement(status=200)
    return Acknowledgement(
        status=refused.status, body=refused.message, headers=SOON if refused.status >= 500 else {}
    )


PLUGIN = Plugin(
    label="PayPal",
    build=settings.build,
    required=("API_URL", "CLIENT_ID", "MERCHANT_ID", "WEBHOOK_ID", "CERT_FILE"),
    optional=("CLIENT_SECRET", "CLIENT_SECRET_FILE"),
    parts=settings.PARTS,
    acknowledge=acknowledge,
    headers=HEADERS,
    nonce_header="Paypal-Transmission-Sig",
    # of orders and captures (Source: Orders v2, "payer", "payment_source", "shipping"; read 2026-11)
    payer_names=frozenset({"payer", "payment_source", "shipping", "email_address", "payer_id"}),
    private_files=("CLIENT_SECRET_FILE",),
    certificate_files=("CERT_FILE",),
)
