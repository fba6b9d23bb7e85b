"""System checks: the settings name what exists, and every configured account can be built."""

import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import Any

from cryptography import x509
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, DatabaseError, router
from django.db.models import Model
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string

from idempotency.checks.registry import register
from idempotency.checks.settings import check_settings
from idempotency.conf import meant
from payments.channels import accounts
from payments.conf import Payable, config
from payments.deliveries import endpoints
from payments.models import Payment
from payments.order_keys import orders_model
from payments.providers import registry
from payments.providers.actions import KIND_MAX
from payments.providers.base import Provider
from payments.providers.key_files import leaves
from payments.providers.plugin import Plugin
from payments.providers.settings_fields import is_loopback

ENDS_SOON = timedelta(days=30)
NEEDED_APPS = ("procrastinate.contrib.django", "rest_framework")


@register(Tags.compatibility)
def check_payments(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check `PAYMENTS`: keys, order adapter, event handler, webhooks in and out."""
    messages: list[CheckMessage] = [
        Error(f"Add {name!r} to INSTALLED_APPS, then migrate.", id="payments.E009")
        for name in NEEDED_APPS
        if not apps.is_installed(name)
    ]
    try:
        found = config()
    except ImproperlyConfigured as mistake:
        return [*messages, Error(str(mistake), id="payments.E001")]
    messages += [*_order(found.order), *_events(found.events)]
    for name, endpoint in found.webhooks.items():
        messages += [Error(problem, id="payments.E007") for problem in endpoints.problems(name, endpoint)]
    try:
        reverse("payments-webhook", args=["channel"])
    except NoReverseMatch:
        missing = "No address takes notifications: add path('…', include('payments.urls')) to your URLconf."
        messages.append(Error(missing, id="payments.E006"))
    return messages


@register(Tags.security)
def check_channels(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check every configured account: settings complete, keys of the right kind."""
    try:
        providers = config().providers
    except ImproperlyConfigured:
        return []  # E001 reports it
    found: list[CheckMessage] = []
    built = dict[str, Provider | None]()
    for account, fields in providers.items():
        built[account], problems = registry.tried(account, fields)
        # a file that two parts need, once
        found += [Error(problem, id="payments.E003") for problem in dict.fromkeys(map(str, problems))]
        found += _plain_http(account, fields)
        with suppress(registry.ConfigError):  # E003 reports that there is no such channel
            plugin = registry.plugin(account, fields)
            found += _unknown_fields(account, plugin, fields)
            found += _unshown_actions(account, plugin)
            found += _live_key_towards_sandbox(account, plugin, fields)
            found += _readable_by_others(account, plugin, fields)
            found += _ending_certificates(account, plugin, fields)
    return [*found, *_accounts(built)]


@register(Tags.database)
def check_rows(app_configs: Any, databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn of open rows whose account or endpoint is no longer configured."""
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    try:
        if any(_order(config().order)):
            return []
        found, endpoints_gone = accounts.gone(), endpoints.orphaned()
        former = list(_former_orders())
    except (DatabaseError, ImproperlyConfigured):  # not migrated yet; E001
        return []
    hint = "Configure it until they have ended, or record their outcome in the admin."
    attempts = [
        checks.Warning(
            f"{count} open attempts and refunds are at the account {name!r}, which PAYMENTS['PROVIDERS'] "
            "lacks, or has for another merchant.",
            hint=hint,
            id="payments.W003",
        )
        for name, count in found.items()
    ]
    waiting = [
        checks.Warning(
            f"Deliveries wait for {endpoints.where(name)}, which is missing; they are given up after three days.",
            id="payments.W004",
        )
        for name in endpoints_gone
    ]
    return [*attempts, *waiting, *former]


def must_be_sound() -> None:
    """Stop an entry point that starts no management command on the same mistakes, one a line."""
    found = [*check_settings(None), *check_payments(None), *check_channels(None)]
    if errors := [message.msg for message in found if message.is_serious()]:
        raise ImproperlyConfigured("\n".join(errors))


def _order(path: str) -> Iterator[CheckMessage]:
    adapter, problem = _imported("ORDER", path)
    if problem:
        yield problem
        return
    if isinstance(adapter, type) and issubclass(adapter, Payable):
        if lacking := _lacks(adapter):
            yield Error(f"PAYMENTS['ORDER'] = {path!r} {lacking}", id="payments.E002")
        return
    for name, arguments in {"on_payment": ("order_id", "event", "work"), "return_url": ("order_id",)}.items():
        if not _takes(getattr(adapter, name, None), *arguments):
            yield Error(
                f"PAYMENTS['ORDER'] = {path!r} must be a payments.Payable, or have a function {name} that takes"
                f" {', '.join(arguments)} by name: see payments.conf.Orders.",
                id="payments.E002",
            )


def _lacks(adapter: type[Payable]) -> str:
    """Say what keeps an adapter from being used; empty where nothing does."""
    model, lives = getattr(adapter, "model", None), adapter.lives
    is_model = isinstance(model, type) and issubclass(model, Model)
    has_model = is_model or hasattr(model, "__get__")  # a property, which only an adapter in use can answer
    if missing := sorted({*adapter.__abstractmethods__, *([] if has_model else ["model"])}):
        return f"must have {', '.join(missing)}."
    if not _takes(adapter):
        return "must be made without arguments."
    if not hasattr(lives, "__get__") and (not isinstance(lives, timedelta) or lives <= timedelta()):
        return "needs lives, a timedelta above zero."
    if not hasattr(adapter.currency, "__get__") and not re.fullmatch("[A-Z]{3}", str(adapter.currency)):
        return "needs currency, three capital letters of ISO 4217."
    database = router.db_for_write(adapter.model) if is_model else DEFAULT_DB_ALIAS
    if database == DEFAULT_DB_ALIAS:
        return ""
    return (
        f"has orders that are written to {database!r}; they must change in one transaction with their payments,"
        f" which are in {DEFAULT_DB_ALIAS!r}."
    )


def _events(path: str | None) -> Iterator[CheckMessage]:
    if path is None:
        return
    handler, problem = _imported("EVENTS", path)
    if problem:
        yield problem
    elif not callable(handler):
        yield Error(f"PAYMENTS['EVENTS'] = {path!r} is not a function.", id="payments.E002")


def _imported(key: str, path: str) -> tuple[Any, Error | None]:
    try:
        return import_string(path), None
    except ImportError as error:
        return None, Error(f"PAYMENTS[{key!r}] = {path!r} cannot be imported: {error}", id="payments.E001")


def _takes(function: Any, *names: str) -> bool:
    if not callable(function):
        return False
    try:
        signature(function).bind(**dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _unknown_fields(account: str, plugin: Plugin, given: Mapping[str, str]) -> Iterator[CheckMessage]:
    """Report a misspelt field, which nothing reads: an optional one would have its default."""
    known = (registry.BACKEND, *plugin.required, *plugin.optional)
    for name in sorted({*given} - {*known}):
        where = f"PAYMENTS['PROVIDERS'][{account!r}][{name!r}]"
        yield Error(f"{where} is unknown; {meant(name, known)}", id="payments.E003")


def _accounts(built: Mapping[str, Provider | None]) -> Iterator[CheckMessage]:
    """Report a name that fits no address, and two accounts that are one."""
    seen = dict[tuple[str, str], str]()
    for account, provider in built.items():
        if not re.fullmatch(r"[\w.-]{1,64}", account):
            yield Error(
                f"PAYMENTS['PROVIDERS'][{account!r}]: a name has 1 to 64 of A-Z a-z 0-9 _ . -", id="payments.E003"
            )
        if provider is None:
            continue  # E003 reports it
        same = seen.setdefault((provider.channel, provider.merchant), account)
        if same != account:
            yield Error(f"{same} and {account} are one merchant account, {provider.merchant}.", id="payments.E008")


def _former_orders() -> Iterator[CheckMessage]:
    """Warn once ``ORDER`` names another model than the newest payment: keys are per model."""
    newest, today = Payment.objects.order_by("-pk").values_list("order_model", flat=True).first(), orders_model()
    if newest and newest != today:
        yield checks.Warning(
            f"The newest payment is for an order of {newest!r}, but PAYMENTS['ORDER'] is of {today or None!r},"
            " whose orders are others.",
            hint=f"If that is its new name, set order_model of the payments of {newest!r} to it.",
            id="payments.W005",
        )


def _plain_http(account: str, fields: Mapping[str, str]) -> Iterator[CheckMessage]:
    """Report a provider's address that others on the way could read, and answer in its place."""
    for field, url in _urls(fields).items():
        plain = url.lower().startswith("http://") and not settings.DEBUG and not is_loopback(url)
        if plain and "@" not in url:  # a user's name: E003 reports it, and it must not be shown
            name = registry.setting(account, field, fields)
            yield Error(f"{name} must begin with https://; {url} is plain http.", id="payments.E005")


def _unshown_actions(account: str, plugin: Plugin) -> Iterator[CheckMessage]:
    for kind in plugin.actions:
        problem = ""
        if len(kind) > KIND_MAX:
            problem = f"has more than {KIND_MAX} characters."
        elif (renderer := plugin.renderer(kind)) is None:
            write = f"renderers={{{kind!r}: Renderer(page='{plugin.label.lower()}/{kind}.html')}}"
            problem = f"has no renderer: add {write} to the PLUGIN; page is a template or a function."
        elif isinstance(page := renderer.page, str) and page:
            try:
                get_template(page)
            except (TemplateDoesNotExist, TemplateSyntaxError) as error:
                problem = f"has a renderer without the template {page!r}: {error}"
        if problem:
            yield Error(f"{account}: the next action {kind!r} {problem}", id="payments.E010")


def _live_key_towards_sandbox(account: str, plugin: Plugin, fields: Mapping[str, str]) -> Iterator[CheckMessage]:
    sandbox = getattr(settings, "SANDBOX_URL", "")
    there = [field for field, url in _urls(fields).items() if sandbox and url.startswith(sandbox)]
    with suppress(registry.ConfigError):  # E003 reports it
        for field in there:
            if live_key := plugin.live_key(fields):
                key, address = (registry.setting(account, name, fields) for name in (live_key, field))
                yield Error(
                    f"{key} is a live key, but {address} is the sandbox; set a test key.", id="payments.E004"
                )


def _urls(fields: Mapping[str, str]) -> dict[str, str]:
    return {field: value for field, value in fields.items() if field.endswith("_URL")}


def _readable_by_others(account: str, plugin: Plugin, fields: Mapping[str, str]) -> Iterator[CheckMessage]:
    for field in filter(fields.get, plugin.private_files):
        file, mode = fields[field], 0
        with suppress(OSError):  # E003 reports it
            mode = Path(file).stat().st_mode
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            message = f"{registry.setting(account, field, fields)}: every user of this machine can read {file}."
            yield checks.Warning(message, hint=f"chmod o-rwx {file}", id="payments.W001")


def _ending_certificates(account: str, plugin: Plugin, fields: Mapping[str, str]) -> Iterator[CheckMessage]:
    """Warn of files whose last certificate ends soon."""
    for field in filter(fields.get, plugin.certificate_files):
        file, held = fields[field], list[x509.Certificate]()
        with suppress(OSError, ValueError):  # E003 reports it
            held = x509.load_pem_x509_certificates(Path(file).read_bytes())
        # issuers may follow, and one that takes over may stand beside the one that ends
        ends = max((one.not_valid_after_utc for one in leaves(held) or held[:1]), default=None)
        if ends is not None and datetime.now(UTC) < ends < datetime.now(UTC) + ENDS_SOON:
            message = f"{registry.setting(account, field, fields)}: {file} expires on {ends:%Y-%m-%d}."
            yield checks.Warning(message, id="payments.W002")
