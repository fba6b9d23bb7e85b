"""Parts that calls share: the caller, and an order as an answer with its version as ETag."""

from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from shop.api.serializers import represent_order
from shop.models import Order


def caller_id(request: HttpRequest | Request) -> int:
    """Return the logged-in user's primary key; the view lets nobody else in."""
    user_id = request.user.pk
    assert user_id is not None  # noqa: S101
    return int(user_id)


def etag_of(version: int) -> str:
    """Write the version as a strong entity tag (RFC 9110, section 8.8.3)."""
    return f'"{version}"'


def order_response(order: Order, *, payment_id: UUID | None, status: int = 200) -> Response:
    """Answer with the order and its ETag; a fresh one (201) has its Location too."""
    headers = {"ETag": etag_of(order.version)}
    if status == 201:
        headers["Location"] = reverse("api-order", args=[order.id])
    return Response(represent_order(order, payment_id=payment_id), status=status, headers=headers)
