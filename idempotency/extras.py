"""Optional parts of the package, and the sentence that names the extra of a missing one."""

from collections.abc import Iterator
from contextlib import contextmanager

PACKAGES = {
    "client": "httpx",
    "django-redis": "django-redis",
    "drf": "Django REST framework",
    "encryption": "cryptography",
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
