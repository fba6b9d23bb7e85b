"""Changes of the `PAYMENTS` setting for one test."""

from types import SimpleNamespace
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group

import payments
from shop.orders import lifecycle


def changed(**values: Any) -> dict[str, Any]:
    """`PAYMENTS` with other values."""
    return {**settings.PAYMENTS, **values}


def limited(**values: Any) -> dict[str, Any]:
    """`PAYMENTS` with other limits."""
    return changed(LIMITS={**settings.PAYMENTS["LIMITS"], **values})


def _explode(**_: Any) -> bool:
    raise RuntimeError("the shop is on fire")


on_fire = SimpleNamespace(on_payment=_explode, return_url=lifecycle.return_url)
ON_FIRE = f"{__name__}.on_fire"  # for ``ORDER``


class Rooms(payments.Payable):
    """Orders of another project: groups, each 5.00 CNY."""

    model = Group

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


ROOMS = f"{__name__}.Rooms"  # for ``ORDER``
