"""Paths below `/api/v1/`."""

from django.urls import path

from shop.api.keys import KeyDetail
from shop.api.orders import OrderCancel, OrderDetail, OrderList, OrderPayment
from shop.api.products import ProductDetail, ProductLike, ProductList
from shop.api.scarce import CouponDraw, FlashSaleOrder

urlpatterns = [
    path("idempotency-keys/<path:key>", KeyDetail.as_view(), name="api-idempotency-key"),
    path("products", ProductList.as_view(), name="api-products"),
    path("products/<slug:sku>", ProductDetail.as_view(), name="api-product"),
    path("products/<slug:sku>/like", ProductLike.as_view(), name="api-product-like"),
    path("orders", OrderList.as_view(), name="api-orders"),
    path("orders/<hexid:order_id>", OrderDetail.as_view(), name="api-order"),
    path("orders/<hexid:order_id>/cancel", OrderCancel.as_view(), name="api-order-cancel"),
    path("orders/<hexid:order_id>/payment", OrderPayment.as_view(), name="api-order-payment"),
    path("flash-sales/<slug:sku>/orders", FlashSaleOrder.as_view(), name="api-flash-sale-order"),
    path("coupons/<slug:campaign>/draw", CouponDraw.as_view(), name="api-coupon-draw"),
]
