"""What the calls have in common: who calls, and an order as an answer with its version as ETag."""

from uuid import UUID

from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from shop.api.serializers import represent_order
from shop.models import Order


def caller_id(request: Request) -> int:
    """Primary key of the user who calls; every call here needs authentication."""
    user_id = request.user.pk
    assert user_id is not None  # noqa: S101
    return int(user_id)


def etag_of(version: int) -> str:
    """The version as a strong entity tag (RFC 9110, section 8.8.3)."""
    return f'"{version}"'


def order_response(order: Order, *, payment_id: UUID | None, status: int = 200) -> Response:
    """The order with its ETag; a fresh one (201) also says where it is.

    Args:
        order: with its items.
        payment_id: of its payment, if it has one.
        status: HTTP status.
    """
    headers = {"ETag": etag_of(order.version)}
    if status == 201:
        headers["Location"] = reverse("api-order", args=[order.id])
    return Response(represent_order(order, payment_id=payment_id), status=status, headers=headers)
