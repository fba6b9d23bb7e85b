"""Calls about flash sales and coupons."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.call import KeyedCall, call_of
from idempotency.drf import idempotent
from shop import sales as flashsale
from shop.api import schema
from shop.api.answers import caller_id, order_response
from shop.api.serializers import CouponResponse, OrderResponse
from shop.sales import coupons


class FlashSaleOrder(APIView):
    @extend_schema(
        operation_id="flash_sales_order",
        summary="Buy in a flash sale",
        description="One unit a buyer, first come, first served; the answer is an order to be paid until "
        "`expires_at`. Closing it unpaid puts its unit on sale again, and the buyer may buy again while the sale "
        "runs. A refusal is stored under its key: to try again, send a fresh one.",
        parameters=[schema.IDEMPOTENCY_KEY, schema.LOCATION, schema.ETAG, schema.REPLAYED],
        request=None,
        responses=schema.responses(
            {201: OrderResponse},
            {404: "flash_sale_not_found", 409: "sold_out, already_bought, flash_sale_not_running"},
            keyed=True,
        ),
    )
    @idempotent
    def post(self, request: Request, sku: str, *, call: KeyedCall) -> Response:
        order = flashsale.buy(sku=sku, user_id=caller_id(request))
        call.about("order", order.id)
        return order_response(order, payment_id=None, status=201)


class CouponDraw(APIView):
    @extend_schema(
        operation_id="coupons_draw",
        summary="Draw a coupon",
        description="One a user and campaign, and nobody else's: a later draw returns the same code.",
        parameters=[schema.IDEMPOTENCY_KEY, schema.REPLAYED],
        request=None,
        responses=schema.responses(
            {201: CouponResponse},
            {404: "campaign_not_found", 409: "none_left"},
            keyed=True,
        ),
    )
    def post(self, request: Request, campaign: str) -> Response:
        coupon = coupons.draw(slug=campaign, user_id=caller_id(request))
        call_of(request).about("coupon", coupon.pk)
        return Response({"code": coupon.code}, status=201)
