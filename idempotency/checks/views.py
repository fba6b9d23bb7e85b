"""System checks of keyed views, of the paths that ``KEYED`` names, and of webhooks."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as Advice
from django.db import connections
from django.urls import NoReverseMatch, URLResolver, get_resolver, reverse

from idempotency.checks.registry import register
from idempotency.checks.settings import MIDDLEWARE, place
from idempotency.conf import MARKED, parsed
from idempotency.middleware import is_named, is_of_ninja, keyed_form
from idempotency.postgres import home

FUNCTIONS = "idempotency.views"  # module of the wrapper that takes a request, and of a method its instance
# where a converter or a regular expression begins in a pattern
_VARIES = re.compile(r"[<(\[\\^$.?*+|]")


@register(Tags.urls)
def check_keyed_views(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that keyed views have one policy, and that all that ``KEYED`` names can be keyed."""
    views = [(path, view, name_of(view)) for path, view in all_views()]
    found = {f"{each.id} {name}": each for path, view, name in views for each in _faults(path, view, name)}
    return [found[key] for key in sorted(found)]


def _faults(path: str, view: Any, name: str) -> Iterator[CheckMessage]:
    cls = class_of(view)
    yield from _of_options(view, name)
    # by name: the mixin needs REST framework
    if hasattr(cls, "idempotent_handlers") and "IdempotentMixin" not in {base.__name__ for base in cls.__mro__}:
        yield Error(
            f"{name} has idempotent_handlers, which keys nothing without IdempotentMixin. Let it inherit from "
            "idempotency.drf.IdempotentMixin first.",
            id="idempotency.E016",
        )
    if inside := _authorises_inside(view, cls):
        yield Error(
            f"{name} has @idempotent on dispatch or as_view(), around {inside}, which a replay would not ask. "
            "Put it on the method that changes something: @method_decorator(idempotent, name='post').",
            id="idempotency.E019",
        )
    exempt = getattr(cls, "idempotency_exempt", False) or getattr(view, "idempotency_exempt", False)
    if exempt and is_decorated(view):
        yield Error(
            f"{name} has both @idempotent and @not_keyed. Remove one of them: IDEMPOTENCY['KEYED'] leaves out "
            "what is under @not_keyed, and @idempotent keys a view whatever KEYED is.",
            id="idempotency.E011",
        )
    elif is_named(path) and (reason := why_not(view)):
        yield Error(
            f"IDEMPOTENCY['KEYED'] names {path}, which it cannot key: {reason} Leave it out by a list of "
            "prefixes, or put @idempotent or @not_keyed on it.",
            id="idempotency.E012",
        )


def _of_options(view: Any, name: str) -> Iterator[CheckMessage]:
    """Yield what is wrong with the options and doors of a view's handlers."""
    config = parsed()
    for handler in _handlers(view):
        policy, door = getattr(handler, "idempotency_policy", None), getattr(handler, "idempotency_door", None)
        if policy is None or config is None:
            continue
        if policy.lifetime is not None and policy.lifetime > config.body_seconds:
            yield Error(
                f"{name} has lifetime={policy.lifetime}, and answers are stored for "
                f"{config.body_seconds:g} s. Raise IDEMPOTENCY['BODY_SECONDS'], or lower the option.",
                id="idempotency.E013",
            )
        right = "ninja" if is_of_ninja(view) else "drf" if hasattr(view, "cls") else "views"
        if door != right:
            write = f"idempotency.{right}.idempotent"
        elif _gets_self(view, handler):
            write = "@method_decorator(idempotent) above the method"
        else:
            continue
        yield Error(
            f"{name} is under idempotency.{door}.idempotent, which cannot answer for it. Write {write}.",
            id="idempotency.E014",
        )


def _gets_self(view: Any, handler: Any) -> bool:
    """Check if a handler is a method of Django's class under the decorator of functions."""
    return hasattr(view, "view_class") and getattr(handler, "__globals__", {}).get("__name__") == FUNCTIONS


def _authorises_inside(view: Any, cls: Any) -> str:
    """Name Django's mixin that authorises inside a view keyed as a whole; empty without one."""
    if cls is None or not hasattr(view, "idempotency_mode"):  # `as_view` copies what `dispatch` has
        return ""
    # by name: importing them needs django.contrib.auth among the apps
    mixins = [base.__name__ for base in cls.__mro__ if base.__module__ == "django.contrib.auth.mixins"]
    return mixins[0] if mixins else ""


@register(Tags.urls)
def check_subjects(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that the addresses of ``SUBJECT_ADMIN`` exist."""
    config = parsed()
    named = config.subject_admin if config is not None and getattr(settings, "ROOT_URLCONF", None) else {}
    for kind, name in named.items():
        if not _takes_id(name):
            yield Error(
                f"IDEMPOTENCY['SUBJECT_ADMIN'][{kind!r}] is {name!r}, and no address of this name takes an id. "
                "Write one such as 'admin:shop_order_change'.",
                id="idempotency.E001",
            )


def _takes_id(name: str) -> bool:
    for identifier in ("1", str(UUID(int=0))):  # by the address's converter
        with suppress(NoReverseMatch):
            return bool(reverse(name, args=[identifier]))
    return False


@register(Tags.urls)
def check_middleware(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that the middleware is there where views are keyed; tasks alone need none."""
    config = parsed()
    if config is None or not config.enabled or place() is not None:
        return
    if config.keyed != MARKED:
        fault = f"IDEMPOTENCY['KEYED'] = {config.keyed!r} keys nothing"
    elif found := sorted({name_of(view) for _, view in all_views() if is_decorated(view)}):
        fault = f"problems and outages in {', '.join(found)} are answered by 500"
    else:
        return
    fault = f"MIDDLEWARE lacks {MIDDLEWARE!r}; add it as the last one. Without it {fault}."
    yield Error(fault, id="idempotency.E002")


@register(Tags.urls)
def check_atomic_requests(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that no keyed method runs in the transaction of ATOMIC_REQUESTS."""
    if not connections.settings[home.alias()]["ATOMIC_REQUESTS"]:
        return
    for name in sorted({name_of(view) for _, view in all_views() if _keyed_inside_a_transaction(view)}):
        yield Error(
            f"{name} has @idempotent methods, but ATOMIC_REQUESTS wraps the view in a transaction of its own.",
            hint="Take the view out of it: let a DRF class inherit from idempotency.drf.IdempotentMixin first, "
            "put @non_atomic_requests above @api_view, on any other class @method_decorator(non_atomic_requests, "
            "name='dispatch'); for Django Ninja, call non_atomic_requests(pattern.callback) for each pattern of "
            "urls[0], with the urls = api.urls that the URLconf has.",
            id="idempotency.E005",
        )


@register(Tags.urls)
def check_prefixes(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Warn of a path prefix in ``KEYED`` below which there is no view, such as a misspelt one."""
    config = parsed()
    if config is None or not config.enabled or isinstance(config.keyed, str):
        return
    paths = [path for path, _ in all_views()]
    for prefix in config.keyed:
        if paths and not any(_may_begin_with(path, prefix) for path in paths):
            yield Advice(
                f"IDEMPOTENCY['KEYED'] has the prefix {prefix!r}, and no view's address begins so: it keys "
                "nothing. Correct it, or remove it.",
                id="idempotency.W007",
            )


def _may_begin_with(path: str, prefix: str) -> bool:
    """Check if an address of this pattern, in which parts may vary, can begin with `prefix`."""
    fixed = _VARIES.split(path, maxsplit=1)[0]
    return fixed.startswith(prefix) or (fixed != path and prefix.startswith(fixed))


@register(Tags.urls)
def check_webhooks(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that every webhook has the secret that it verifies with."""
    hooks = {view.webhook.sender: view.webhook for _, view in all_views() if hasattr(view, "webhook")}
    for sender, hook in sorted(hooks.items()):
        if fault := hook.verify.fault():
            yield Error(
                f"@webhook({sender!r}) answers 503 to everything: {fault}.",
                hint=f"Write verify={type(hook.verify).__name__}(…) with the secret that the sender shows for "
                "this endpoint, a list of two while you rotate it, or a function that returns it.",
                id="idempotency.E017",
            )


def all_views() -> list[tuple[str, Any]]:
    """List each view with its path; none where settings or addresses are missing."""
    if parsed() is None or not getattr(settings, "ROOT_URLCONF", None):
        return []
    return list(_views(get_resolver(), "/"))


def _views(resolver: URLResolver, path: str) -> Iterator[tuple[str, Any]]:
    for pattern in resolver.url_patterns:
        here = path + str(pattern.pattern).lstrip("^/")
        if isinstance(pattern, URLResolver):
            yield from _views(pattern, here)
        else:
            yield here, pattern.callback


def why_not(view: Any) -> str:
    """Explain why ``KEYED`` cannot key a view; empty if it can."""
    try:
        keyed_form(view)
    except TypeError as error:
        return str(error)
    return ""


def is_decorated(view: Any) -> bool:
    """Check if the view, or a method of its class, is under `@idempotent`."""
    return any(hasattr(handler, "idempotency_mode") for handler in _handlers(view))


def _handlers(view: Any) -> list[Any]:
    """List what a decorator may key: the view, its methods or its operations."""
    if is_of_ninja(view):
        from idempotency.ninja import operations_of  # noqa: PLC0415  only where it is installed

        return [operation.view_func for operation in operations_of(view)]
    cls = class_of(view)
    if cls is None:
        return [view]
    return [*methods_of(view, cls).values()]


def methods_of(view: Any, cls: Any) -> dict[str, Any]:
    """Map what a class has to its name; what `@api_view` made a handler of, in its place."""
    methods = {name: getattr(cls, name, None) for name in dir(cls)}
    if not hasattr(view, "cls"):
        return methods
    from idempotency.drf import function_of  # noqa: PLC0415  only where it is installed

    return {name: function_of(method) for name, method in methods.items()}


def _keyed_inside_a_transaction(view: Any) -> bool:
    is_function = class_of(view) is None and not is_of_ninja(view)
    leaves = is_function or home.alias() in getattr(view, "_non_atomic_requests", ())
    return not leaves and is_decorated(view)


def class_of(view: Any) -> Any:
    return getattr(view, "view_class", getattr(view, "cls", None))


def name_of(view: Any) -> str:
    cls = class_of(view)
    named = view if cls is None else cls
    if is_of_ninja(view) and (operations := _handlers(view)):
        named = operations[0]
    name = getattr(named, "__qualname__", repr(named))
    if name == "WrappedAPIView":  # of @api_view, which gives it the function's name only
        name = named.__name__
    return f"{named.__module__}.{name}"
