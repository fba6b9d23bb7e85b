"""Orders of payments: the columns of an order's primary key, and the key they name."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db.models import Model, Q, UUIDField

from payments.conf import config, orders

_ORDERS = UUID("6f0c8f2b-6f0e-4b52-9d0f-6e5d8f6c2a41")  # names become numbers of orders in this space


def order_columns(order_id: object) -> dict[str, Any]:
    """Return the columns of `Payment` that name an order, the unique `order_id` among them.

    Args:
        order_id: its primary key. A UUID is the number itself; from the text of any other the number is made.

    Raises ValidationError: no order can have this key.

    Source: RFC 9562, section 5.5 (May 2024).
    """
    key = _as_key(order_id)
    if key in {None, ""}:
        raise ValidationError("An order that is not saved has no key.")
    if isinstance(key, UUID):
        return {"order_id": key, "order_key": "", "order_model": ""}
    return {"order_id": uuid5(_ORDERS, str(key)), "order_key": str(key), "order_model": orders_model()}


def beside_former(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an order whose key a former model's order has too."""
    return {**columns, "order_id": uuid5(_ORDERS, f"{columns['order_model']}:{columns['order_key']}")}


def of_order(order_id: object) -> Q:
    """Return the filter for an order's payment, not for a former model's with its key.

    Raises as `order_columns`.
    """
    columns = order_columns(order_id)
    if not columns["order_key"]:
        return Q(order_id=columns["order_id"], order_key="")
    numbers = [columns["order_id"], beside_former(columns)["order_id"]]
    # the version before names no model
    return Q(order_id__in=numbers, order_key=columns["order_key"], order_model__in=["", columns["order_model"]])


def orders_model() -> str:
    """Name the orders' model, ``app.model``; empty where the adapter names none."""
    model = getattr(orders(), "model", None)
    return str(model._meta.concrete_model._meta.label_lower) if model else ""


def payment_of(order: Model) -> Q:
    """Build the key of an order, as `of_order`. Raises TypeError for another model's."""
    model = getattr(orders(), "model", None)
    if model and not isinstance(order, model._meta.concrete_model):
        raise TypeError(f"{order!r} is no {model.__name__}, of which PAYMENTS['ORDER'] = {config().order!r} is.")
    return of_order(order.pk)


def order_of(payment: Any) -> Any:
    """Return the primary key of the order that the columns of a payment name.

    Raises ImproperlyConfigured for an order of a former model; one of today's may have the same key.
    """
    if not payment.order_key:
        return payment.order_id
    if payment.order_model not in {"", orders_model()}:
        raise ImproperlyConfigured(
            f"Payment {payment.id.hex} is of {payment.order_model} {payment.order_key}, but PAYMENTS['ORDER'] ="
            f" {config().order!r} is of {orders_model() or 'no model'}: settle it with the adapter of its orders."
        )
    return _as_key(payment.order_key)


def _as_key(order_id: object) -> Any:
    """Give a key the type of the orders' model, so that 7 and "7" are one; else UUID."""
    model = getattr(orders(), "model", None)
    return (model._meta.pk if model else UUIDField()).to_python(order_id)
