"""System checks: what the settings name exists, and every configured channel can be built."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.utils.module_loading import import_string

from payments.providers import registry


@register(Tags.compatibility)
def check_functions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """`PAYMENT_ORDER_LISTENER` and `PAYMENT_EVENT_HANDLER` name functions."""
    found: list[CheckMessage] = []
    for name in ("PAYMENT_ORDER_LISTENER", "PAYMENT_EVENT_HANDLER"):
        path = getattr(settings, name, "")
        try:
            function = import_string(path)
        except ImportError as error:
            found.append(Error(f"{name} = {path!r} cannot be imported: {error}", id="payments.E001"))
        else:
            if not callable(function):
                found.append(Error(f"{name} = {path!r} is not a function.", id="payments.E002"))
    return found


@register(Tags.security)
def check_channels(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The settings of every channel that is configured are complete and its keys can be read."""
    try:
        registry.build(settings.PAYMENT_CHANNELS)
    except registry.ConfigError as error:
        return [Error(str(error), id="payments.E003")]
    return []
