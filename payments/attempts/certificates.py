"""Certificates of the providers, stored ahead of need; never fetched for a request."""

import logging

from payments.attempts import calling
from payments.channels import configured as channels
from payments.conf import config
from payments.errors import ProviderError
from payments.providers.base import Provider
from payments.providers.registry import ConfigError

log = logging.getLogger(__name__)


def refresh() -> int:
    """Store the providers' new certificates beside those we hold; return how many.

    What fails is logged, and tried again by the next run.

    Transaction: NONE may be open.
    """
    calling.must_be_outside_transactions()
    return sum(_renewed(*each) for each in channels.current().items())


def _renewed(account: str, provider: Provider) -> int:
    renew = channels.plugin(account).renew
    if renew is None:
        return 0
    try:
        stored = renew(provider, config().providers[account])
    except ProviderError as error:
        log.warning("New certificates of %s could not be had: %s", account, error)
        return 0
    except ConfigError as error:
        log.error("%s", error)
        return 0
    if stored:
        log.info("New certificates of %s: %s", account, ", ".join(stored))
        channels.look_now()
    return len(stored)
