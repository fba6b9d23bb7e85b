"""Calls about orders: place, list, read, edit, cancel, pay.

An unknown sku inside an order's items is 404 `product_not_found`: a refusal about a named thing is stored and
replayed.
"""

from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.call import KeyedCall
from idempotency.drf import idempotent
from idempotency.modes import PHASED
from idempotency.views import not_keyed
from payments.api.serializers import PaymentSerializer
from payments.providers.actions import Payer, PayMethod
from shop.api import schema
from shop.api.answers import caller_id, etag_of, order_response
from shop.api.serializers import NoteRequest, OrderRequest, OrderResponse, PaymentRequest, represent_order
from shop.errors import PreconditionRequired
from shop.models import Order, OrderStatus
from shop.orders import checkout, lifecycle
from shop.orders import placing as orders
from shop.platform.clientip import client_ip
from shop.sales import coupons

ORDER_MISSING = {404: "order_not_found"}


def _accepted_versions(header: str) -> frozenset[int] | None:
    """Read the versions of an If-Match; None for `*`. Weak and foreign tags match nothing.

    Source: RFC 9110, section 13.1.1 (June 2022).
    """
    tags = parse_etags(header)
    if tags == ["*"]:
        return None
    bare = (tag.strip('"') for tag in tags if not tag.startswith("W/"))
    return frozenset(int(tag) for tag in bare if tag.isascii() and tag.isdigit() and len(tag) < 19)


def _with_payment(order: Order, *, status: int = 200) -> Response:
    payment_id = orders.payment_ids(order_ids=[order.id]).get(order.id)
    return order_response(order, payment_id=payment_id, status=status)


class OrderPages(CursorPagination):
    """Pages, newest first; ids are ordered by time, so a page's edge is exact."""

    page_size = 20
    max_page_size = 100
    page_size_query_param = "page_size"
    ordering = "-id"

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Decode a cursor, which names an id; anything else was not made here."""
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None:
            try:
                UUID(str(cursor.position))
            except ValueError:
                raise NotFound(self.invalid_cursor_message) from None
        return cursor


class OrderList(APIView):
    @extend_schema(
        operation_id="orders_list",
        summary="List one's orders, newest first",
        parameters=[
            OpenApiParameter("cursor", OpenApiTypes.STR, description="from `next` or `previous` of another page"),
            OpenApiParameter("page_size", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
        ],
        responses=schema.responses({200: schema.page_of(OrderResponse)}, {404: "not_found"}),
    )
    def get(self, request: Request) -> Response:
        paginator = OrderPages()
        mine = orders.list_orders(user_id=caller_id(request))
        page: list[Order] = paginator.paginate_queryset(mine, request, view=self) or []
        payments = orders.payment_ids(order_ids=[order.id for order in page])
        return paginator.get_paginated_response(
            [represent_order(order, payment_id=payments.get(order.id)) for order in page]
        )

    @extend_schema(
        operation_id="orders_create",
        summary="Place an order",
        description="Takes the units off the shelf until `expires_at`. Either all items are ordered or none. "
        "A coupon counts for one order, until that is closed.",
        parameters=[schema.IDEMPOTENCY_KEY, schema.LOCATION, schema.ETAG, schema.REPLAYED],
        request=OrderRequest,
        examples=[schema.ORDER_REQUEST_EXAMPLE],
        responses=schema.responses(
            {201: OrderResponse},
            {
                400: "validation_failed, malformed",
                404: "product_not_found",
                409: "out_of_stock, flash_sale_only, mixed_currency, coupon_not_usable",
            },
            keyed=True,
        ),
    )
    @idempotent(body=OrderRequest)
    def post(self, request: Request, *, data: dict[str, Any], call: KeyedCall) -> Response:
        user_id = caller_id(request)
        order = orders.create_order(
            user_id=user_id,
            quantities={item["sku"]: item["quantity"] for item in data["items"]},
            note=data["note"],
        )
        if "coupon" in data:
            coupons.use(code=data["coupon"], order_id=order.id, user_id=user_id)
            order = orders.get_order(order_id=order.id, user_id=user_id)
        call.about("order", order.id)
        return order_response(order, payment_id=None, status=201)


class OrderDetail(APIView):
    @extend_schema(
        operation_id="orders_read",
        summary="Read an order",
        parameters=[schema.IF_NONE_MATCH, schema.ETAG],
        responses=schema.responses(
            {200: OrderResponse, 304: OpenApiResponse(description="still at the caller's ETag")}, ORDER_MISSING
        ),
    )
    def get(self, request: Request, order_id: UUID) -> Response:
        order = orders.get_order(order_id=order_id, user_id=caller_id(request))
        etag = etag_of(order.version)
        known = [tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))]
        if etag in known or known == ["*"]:
            return Response(status=304, headers={"ETag": etag})
        return _with_payment(order)

    @extend_schema(
        operation_id="orders_edit",
        summary="Edit an order's note",
        parameters=[schema.IF_MATCH, schema.ETAG],
        request=NoteRequest,
        responses=schema.responses(
            {200: OrderResponse},
            {
                **ORDER_MISSING,
                400: "validation_failed, malformed",
                412: "version_conflict",
                428: "precondition_required",
            },
        ),
    )
    @not_keyed
    def patch(self, request: Request, order_id: UUID) -> Response:
        user_id = caller_id(request)
        orders.get_order(order_id=order_id, user_id=user_id)
        header = request.headers.get("If-Match")
        if not header:
            raise PreconditionRequired
        body = NoteRequest(data=request.data)
        body.is_valid(raise_exception=True)
        note, versions = body.validated_data["note"], _accepted_versions(header)
        return _with_payment(orders.update_note(order_id=order_id, user_id=user_id, versions=versions, note=note))


class OrderCancel(APIView):
    @extend_schema(
        operation_id="orders_cancel",
        summary="Cancel an order",
        description="Closes it at the payment providers first, then here, and puts the units back. Cancelling a "
        "closed order answers 200 again. 202: a provider did not answer; the order takes no payment any more "
        "and is closed as soon as the provider has.",
        parameters=[schema.IDEMPOTENCY_KEY, schema.ETAG, schema.REPLAYED],
        request=None,
        responses=schema.responses(
            {200: OrderResponse, 202: OrderResponse}, {**ORDER_MISSING, 409: "order_paid"}, keyed=True
        ),
    )
    @idempotent(mode=PHASED)
    def post(self, request: Request, order_id: UUID, *, call: KeyedCall) -> Response:
        call.about("order", order_id)
        order = lifecycle.cancel(order_id=order_id, user_id=caller_id(request))
        return _with_payment(order, status=202 if order.status == OrderStatus.PENDING else 200)


class OrderPayment(APIView):
    @extend_schema(
        operation_id="orders_pay",
        summary="Pay an order",
        description="Opens the order's one payment, or a further attempt on it by another channel, and says how "
        "the shopper goes on. 202: the provider did not answer, the payment is `uncertain`; the same key again "
        "returns its current state.",
        parameters=[schema.IDEMPOTENCY_KEY, schema.LOCATION, schema.ETAG, schema.REPLAYED],
        request=PaymentRequest,
        responses=schema.responses(
            {201: PaymentSerializer, 202: PaymentSerializer},
            {
                **ORDER_MISSING,
                400: "validation_failed, malformed",
                409: "order_paid, order_closed, channel_unavailable, method_unavailable",
                502: "provider_refused",
                503: "provider_unavailable",
            },
            keyed=True,
        ),
    )
    @idempotent(body=PaymentRequest, mode=PHASED)
    def post(self, request: Request, order_id: UUID, *, data: dict[str, Any], call: KeyedCall) -> Response:
        call.about("order", order_id)
        method = PayMethod(data["method"]) if "method" in data else None
        payment = checkout.start_payment(
            order_id=order_id,
            user_id=caller_id(request),
            channel=data["channel"],
            method=method,
            payer=Payer(openid=data.get("openid", ""), client_ip=client_ip(request.META)),
            resumed=call.resumed,
            was_uncertain=call.was_uncertain,
        )
        document = PaymentSerializer(payment).data
        return Response(
            document,
            status=202 if checkout.is_uncertain(document, channel=data["channel"], method=method) else 201,
            headers={"Location": reverse("api-payment", args=[payment.id]), "ETag": etag_of(payment.version)},
        )
