"""Alipay with RSA2, by public key or by certificates."""

from payments.providers.alipay import settings
from payments.providers.alipay.client import Alipay
from payments.providers.plugin import Acknowledgement, Plugin, Refusal, gettext_noop


def acknowledge(refused: Refusal | None) -> Acknowledgement:
    """Answer a notification.

    Source: Alipay open platform, "asynchronous notification": the body ``success`` acknowledges, anything else
    is sent again (read 2026-11).
    """
    return Acknowledgement(status=200, body="fail" if refused else "success")


PLUGIN = Plugin(
    label=gettext_noop("Alipay"),
    build=Alipay,
    required=("GATEWAY_URL", "APP_ID", "SELLER_ID", "APP_KEY_FILE", "PUBLIC_KEY_FILE"),
    optional=settings.CERTIFICATE_FILES,
    parts=(settings.gateway_url, settings.app_key, settings.platform_keys, settings.certificates),
    acknowledge=acknowledge,
    headers=("Content-Type",),
    # the younger open ids among them
    # (Source: "Asynchronous notification parameters" of alipay.trade.page.pay, read 2026-11)
    payer_names=frozenset(
        {"buyer_id", "buyer_logon_id", "buyer_open_id", "buyer_user_id", "buyer_user_name", "open_id"}
    ),
    spared=lambda fields: ("PUBLIC_KEY_FILE",) if settings.certificates_set(fields) else (),
    private_files=("APP_KEY_FILE",),
    certificate_files=("APP_CERT_FILE", "PUBLIC_CERT_FILE"),
)
