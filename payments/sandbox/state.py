"""The store and key ring of this process, set by `__main__` before the first request."""

from pathlib import Path

from payments.sandbox.keys import Keys
from payments.sandbox.store import Store


class _Process:
    store: Store
    keys: Keys
    shop = ""


_process = _Process()


def open_folder(folder: Path, *, shop: str = "") -> None:
    """Use the keys and the store under `folder`, for the shop at the address `shop`."""
    _process.shop = shop.rstrip("/")
    _process.keys = Keys(folder)
    _process.store = Store(folder / "sandbox.sqlite3")


def store() -> Store:
    return _process.store


def keys() -> Keys:
    return _process.keys


def shop() -> str:
    """Return the address of the shop whose shoppers pay here; empty if unknown."""
    return _process.shop
