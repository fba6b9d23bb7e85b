"""System checks: the order listener exists, and every configured channel can be built."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.utils.module_loading import import_string

from payments.providers import registry


@register(Tags.compatibility)
def check_listener(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """`PAYMENT_ORDER_LISTENER` names a function."""
    path = getattr(settings, "PAYMENT_ORDER_LISTENER", "")
    try:
        found = import_string(path)
    except ImportError as error:
        return [Error(f"PAYMENT_ORDER_LISTENER = {path!r} cannot be imported: {error}", id="payments.E001")]
    if not callable(found):
        return [Error(f"PAYMENT_ORDER_LISTENER = {path!r} is not a function.", id="payments.E002")]
    return []


@register(Tags.security)
def check_channels(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The settings of every channel that is configured are complete and its keys can be read."""
    try:
        registry.build(settings.PAYMENT_CHANNELS)
    except registry.ConfigError as error:
        return [Error(str(error), id="payments.E003")]
    return []
