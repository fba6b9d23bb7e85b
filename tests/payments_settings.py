"""Changes of the `PAYMENTS` setting for one test."""

from types import SimpleNamespace
from typing import Any

from django.conf import settings

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
