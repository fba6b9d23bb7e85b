"""WeChat Pay API v3."""

import json

from payments.providers.plugin import SOON, Acknowledgement, Plugin, Refusal, gettext_noop
from payments.providers.wechat import settings
from payments.providers.wechat.client import WeChatPay, renew


def acknowledge(refused: Refusal | None) -> Acknowledgement:
    """Answer a notification.

    Source: WeChat Pay API v3, "payment result notification": any 2xx acknowledges, an error is answered
    ``{"code": "FAIL", "message": …}`` (read 2026-11).
    """
    if refused is None:
        return Acknowledgement(status=204)
    return Acknowledgement(
        status=refused.status,
        body=json.dumps({"code": "FAIL", "message": refused.message}),
        content_type="application/json",
        headers=SOON if refused.status == 503 else {},
    )


PLUGIN = Plugin(
    label=gettext_noop("WeChat Pay"),
    build=WeChatPay,
    required=("API_URL", "MCH_ID", "APP_ID", "MCH_SERIAL", "MCH_KEY_FILE", "PLATFORM_KEYS_DIR"),
    optional=("API_V3_KEY", "API_V3_KEY_FILE", "MCH_CERT_FILE"),
    parts=(settings.api_url, settings.api_v3_keys, settings.mch_pair, settings.valid_platform_keys),
    acknowledge=acknowledge,
    headers=(
        *("Wechatpay-Serial", "Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Signature"),
        "Content-Type",
    ),
    nonce_header="Wechatpay-Nonce",
    # of the decrypted resource (Source: "Payment success notification", WeChat Pay v3; read 2026-11)
    payer_names=frozenset({"payer", "openid", "sub_openid", "payer_client_ip"}),
    spared=lambda fields: ("MCH_SERIAL",) if fields.get("MCH_CERT_FILE") else (),
    private_files=("MCH_KEY_FILE", "API_V3_KEY_FILE"),
    certificate_files=("MCH_CERT_FILE",),
    renew=renew,
)
