"""Accounts: merchant accounts of a channel, by their names in ``PROVIDERS``."""

from collections import Counter
from contextlib import suppress

from django.db.models import Count, Q, Value
from django.db.models.functions import Coalesce, NullIf
from django.utils.translation import gettext

from payments.channels import configured as channels
from payments.conf import config
from payments.models import Attempt, Refund
from payments.providers import registry
from payments.providers.registry import ConfigError
from payments.states import LIVE_ATTEMPTS, OPEN_REFUNDS

# what is open of each kind, and the lookup that leads to its attempt
OPEN = {Attempt: (LIVE_ATTEMPTS, ""), Refund: (OPEN_REFUNDS, "attempt__")}


def chosen(channel: str) -> str:
    """Return a channel's default account: the one named like it, or its only one."""
    if channel in config().providers:
        return channel
    names = []
    with suppress(ConfigError):  # the caller hears of it when it uses the account
        names = [name for name, provider in channels.current().items() if provider.channel == channel]
    return names[0] if len(names) == 1 else channel


def key_of(account: str, channel: str) -> str:
    """Return what a row says of its account."""
    return "" if account == channel else account


def of_merchant(channel: str, merchant: str) -> str:
    """Return the account of a merchant; the channel where none is rightly configured."""
    with suppress(ConfigError):
        for name, one in channels.current().items():
            if (one.channel, one.merchant) == (channel, merchant):
                return name
    return channel


def name_of(attempt: str = "") -> Coalesce:
    """Select `Attempt.account`; `attempt` is the lookup that leads there."""
    return Coalesce(NullIf(f"{attempt}account_key", Value("")), f"{attempt}channel")


def at(account: str, attempt: str = "") -> Q:
    """Select the rows of an account; as `name_of`."""
    unnamed = {f"{attempt}account_key": "", f"{attempt}channel": account}
    return Q(**{f"{attempt}account_key": account}) | Q(**unnamed)


def at_former(attempt: str = "") -> Q:
    """Select rows of accounts that are gone, or another merchant's by now; as `name_of`."""
    merchants = dict[str, str | None].fromkeys(config().providers)
    with suppress(ConfigError):  # a check of its own says so
        merchants |= {name: one.merchant for name, one in channels.current().items()}
    today = Q(pk__isnull=True)  # none
    for name, merchant in merchants.items():
        today |= at(name, attempt) & (Q() if merchant is None else Q(**{f"{attempt}merchant": merchant}))
    return ~today


def gone() -> Counter[str]:
    """Count open attempts and refunds by accounts, of those that are `at_former` ones."""
    found = Counter[str]()
    for model, (statuses, attempt) in OPEN.items():
        rows = model._default_manager.filter(at_former(attempt), status__in=statuses).order_by()
        named = rows.annotate(account_name=name_of(attempt)).values_list("account_name")
        found.update(dict(named.annotate(count=Count("pk"))))
    return found


def provider_name(channel: str) -> str:
    """Name the provider of a channel; return the channel where the provider's package is gone."""
    with suppress(ConfigError):
        return gettext(registry.plugin(channel, {}).label)
    return channel


def account_name(account: str) -> str:
    """Write an account's name: the channel's, and its own where there are several."""
    with suppress(ConfigError):  # it is gone, and so is its package
        plugin = channels.plugin(account)
        others = [name for name in config().providers if name != account and channels.plugin(name) is plugin]
        return f"{gettext(plugin.label)} ({account})" if others else gettext(plugin.label)
    return account


def method_name(attempt: Attempt) -> str:
    """Write how an attempt was to be paid: at which account, and by which method."""
    return f"{account_name(attempt.account)} ({attempt.method})"
