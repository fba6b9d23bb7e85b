"""Bugs of others, planted in the lab's processes for the checker to find.

Loaded only where `CHAOS_PLANTED` names a file (`tests.system.chaos.settings`); the bug that the file names is on, at the
next call. What a bug needs gone from the database the test drops, and puts back (`tests.system.chaos.scenarios`).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from django.apps import AppConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One guarantee taken away.

    Attributes:
        name: what the file says while it is on.
        constraints: table and name of what would still stop it in the database.
    """

    name: str
    constraints: tuple[tuple[str, str], ...] = ()


LEDGER_UNIQUE = ("idempotency_ledgerentry", "ledger_one_entry_per_scope_and_key")

MARKER_WITHOUT_NX = Bug(name="marker without NX", constraints=(LEDGER_UNIQUE,))
COMPLETION_WITHOUT_CAS = Bug(name="completion without compare-and-set")
LEASE_IGNORED = Bug(name="lease ignored")
CALLBACK_WITHOUT_UNIQUE_ROW = Bug(
    name="callback without unique row",
    constraints=(
        ("payments_notification", "notification_once_per_id"),
        ("payments_observation", "observation_once_per_fact"),
    ),
)
REFUND_WITHOUT_RESERVATION = Bug(name="refund without reservation")
REAPER_WITHOUT_FILTER = Bug(name="reaper without filter")
STOCK_WITHOUT_CONDITION = Bug(
    name="stock without condition", constraints=(("shop_product", "product_stock_never_below_zero"),)
)


class Planted(AppConfig):
    """Puts every bug in its place, off."""

    name = "tests.system.chaos.planted"
    label = "chaos_planted"

    def ready(self) -> None:
        import_module("tests.system.chaos.planted.bugs")


def plant(bug: Bug, module: str, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the decorated function instead of `module.name`, its first argument, while it is on.

    Args:
        module: of the function; `package.module:Class` for a method.
    """
    path, _, owner_name = module.partition(":")
    owner: Any = import_module(path)
    if owner_name:
        owner = getattr(owner, owner_name)
    original = getattr(owner, name)
    switch = Path(os.environ["CHAOS_PLANTED"])

    def put(instead: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def either(*arguments: Any, **named: Any) -> Any:
            if switch.read_text() == bug.name:
                return instead(original, *arguments, **named)
            return original(*arguments, **named)

        setattr(owner, name, either)
        return instead

    return put
