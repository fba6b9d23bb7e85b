"""The store and key ring of this process, set by `__main__` before the first request."""

from dataclasses import dataclass
from pathlib import Path

from payments.sandbox.keys import Keys, load
from payments.sandbox.store import Store


@dataclass
class _Process:
    store: Store | None = None
    keys: Keys | None = None
    shop: str = ""


_process = _Process()


def open_folder(folder: Path, *, shop: str = "") -> None:
    """Use the keys and the store under `folder`, for the shop at the address `shop`."""
    _process.shop = shop.rstrip("/")
    _process.keys = load(folder)
    _process.store = Store(folder / "sandbox.sqlite3")


def store() -> Store:
    assert _process.store is not None  # noqa: S101  opened at start
    return _process.store


def keys() -> Keys:
    assert _process.keys is not None  # noqa: S101  opened at start
    return _process.keys


def for_pages(request: object) -> dict[str, str]:
    """Give every page the shop's address."""
    return {"shop": shop()}


def shop() -> str:
    """Return the address of the shop whose shoppers pay here; empty if unknown."""
    return _process.shop
