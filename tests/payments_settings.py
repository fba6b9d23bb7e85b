"""Changes of the `PAYMENTS` setting for one test."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group

import payments
from payments.channels import configured
from payments.providers import registry
from payments.providers.plugin import Plugin
from shop.orders import lifecycle


def changed(**values: Any) -> dict[str, Any]:
    """`PAYMENTS` with other values."""
    return {**settings.PAYMENTS, **values}


def plug_in(monkeypatch: pytest.MonkeyPatch, of_test: Any, package: str, plugin: Plugin, **values: Any) -> None:
    """Have a package with this plug-in until the test ends, and `PAYMENTS` with these values.

    Args:
        of_test: the fixture `settings`.
    """
    module = ModuleType(package)
    module.PLUGIN = plugin  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package, module)
    of_test.PAYMENTS = changed(**values)
    forget_plugins()


def forget_plugins() -> None:
    """Read packages and settings again when they are next needed."""
    registry._plugin_at.cache_clear()
    configured.forget()


def limited(**values: Any) -> dict[str, Any]:
    """`PAYMENTS` with other limits."""
    return changed(LIMITS={**settings.PAYMENTS["LIMITS"], **values})


def _explode(**_: Any) -> bool:
    raise RuntimeError("the shop is on fire")


on_fire = SimpleNamespace(on_payment=_explode, return_url=lifecycle.return_url)
ON_FIRE = f"{__name__}.on_fire"  # for ``ORDER``


class Stays(payments.Payable):
    """Orders of another project, each 5.00 CNY."""

    def amount(self, order: Any) -> int:
        return 500

    def describe(self, order: Any) -> str:
        return "A room"

    def return_url(self, order: Any) -> str:
        return f"/orders/{order.pk}"

    def is_payable(self, order: Any) -> bool:
        return True

    def mark_paid(self, order: Any) -> bool:
        return True

    def mark_refunded(self, order: Any) -> None:
        """Nothing."""


class Rooms(Stays):
    """Which are groups."""

    model = Group


ROOMS = f"{__name__}.Rooms"  # for ``ORDER``
