"""PayPal from its settings."""

from functools import partial

from payments.providers import key_files
from payments.providers import settings_fields as fields
from payments.providers.base import Provider
from payments.providers.paypal.client import PayPalConfig, PayPalOrders
from payments.providers.settings_fields import Settings
from payments.providers.transport import Limits

api_url = partial(fields.url, "paypal", "API_URL")
client_secret = partial(fields.secret, "paypal", "CLIENT_SECRET")


def certificates(settings: Settings) -> bytes:
    """Read PayPal's certificates: two during a rotation. Raises ConfigError."""
    return fields.pem("PAYPAL_CERT_FILE", settings["CERT_FILE"], key_files.certificate)


def build(settings: Settings, limits: Limits) -> Provider:
    config = PayPalConfig(
        api_url=api_url(settings),
        client_id=settings["CLIENT_ID"],
        client_secret=client_secret(settings),
        merchant_id=settings["MERCHANT_ID"],
        webhook_id=settings["WEBHOOK_ID"],
        certificates=certificates(settings),
    )
    return PayPalOrders(config, limits=limits)
