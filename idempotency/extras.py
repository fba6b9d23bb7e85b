"""Imports on first use: public names, and optional packages with their extra's name."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PACKAGES = {
    "client": "httpx",
    "django-redis": "django-redis",
    "drf": "Django REST framework",
    "encryption": "cryptography",
    "metrics": "prometheus-client",
    "ninja": "Django Ninja",
    "zookeeper": "kazoo",
}


@contextmanager
def needed(extra: str, *, by: str, error: type[Exception] = ImportError) -> Iterator[None]:
    """Import the package of an extra inside the block; its absence raises `error`.

    Args:
        by: module or setting that needs it, as the sentence names it.

    Raises:
        ImportError: or `error`: a module is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        raise error(f"{by} needs {PACKAGES[extra]}: pip install 'payonce[{extra}]'") from missing


def on_first_use(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package that imports its names on first use."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names
