"""The platform's certificates, stored before it signs with them; never on the path of a request."""

import logging
from pathlib import Path

from django.conf import settings

from payments.attempts import calling
from payments.channels import configured as channels
from payments.errors import ProviderError
from payments.providers.wechat.client import WeChatPay
from payments.providers.wechat.keys import keep_certificates

log = logging.getLogger(__name__)


def refresh() -> int:
    """Ask WeChat Pay for its certificates, and store the new ones beside those we hold; return how many were new.

    A key that we hold already verifies the answer. The running processes use a new file within seconds
    (`payments.channels.configured`). A platform that does not answer is asked again by the next run. A file that
    cannot be written is logged as an error with the setting's name, and tried again then.

    Transaction: NONE may be open.
    """
    calling.must_be_outside_transactions()
    provider = channels.current().get("wechat")
    if not isinstance(provider, WeChatPay):
        return 0
    try:
        offered = provider.download_certificates()
    except ProviderError as error:
        log.warning("The platform's certificates could not be had: %s", error)
        return 0
    folder = Path(settings.PAYMENT_CHANNELS["wechat"]["PLATFORM_KEYS_DIR"])
    try:
        kept = keep_certificates(folder, offered)
    except (OSError, ValueError) as error:
        log.error("WECHAT_PLATFORM_KEYS_DIR: the platform's new certificates could not be kept: %s", error)
        return 0
    if kept:
        log.info("New certificates of WeChat Pay: %s", ", ".join(kept))
        channels.look_now()
    return len(kept)
