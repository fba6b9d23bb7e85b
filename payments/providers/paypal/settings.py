"""PayPal's settings."""

from functools import partial

from payments.providers import key_files
from payments.providers import settings_fields as fields
from payments.providers.settings_fields import Settings

api_url = partial(fields.url, "paypal", "API_URL")
client_secret = partial(fields.secret, "paypal", "CLIENT_SECRET")


def certificates(settings: Settings) -> bytes:
    """Read PayPal's certificates: two during a rotation. Raises ConfigError."""
    return fields.pem("PAYPAL_CERT_FILE", settings["CERT_FILE"], key_files.certificate)
