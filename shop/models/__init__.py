"""Tables of the shop: products with stock, likes, orders with items, flash sales, coupons.

Fields, constraints and pure properties only: the database refuses what must never happen, whatever the code does.
The only writers are the admin (new products), `shop.catalog.products` (products, likes), `shop.stock` (a product's
stock columns, segments), `shop.orders.placing` (orders, items), `shop.orders.lifecycle` (an order's status),
`shop.orders.fulfilment`, `shop.sales` (sales, purchases) and `shop.sales.coupons`.
"""

from shop.models.order import Fulfilment, Order, OrderItem, OrderStatus
from shop.models.product import SEGMENTS_MAX, Like, Product, ProductQuerySet, StockSegment, StockStrategy
from shop.models.scarce import Campaign, Coupon, FlashSale, FlashSalePurchase

__all__ = [
    "SEGMENTS_MAX",
    "Campaign",
    "Coupon",
    "FlashSale",
    "FlashSalePurchase",
    "Fulfilment",
    "Like",
    "Order",
    "OrderItem",
    "OrderStatus",
    "Product",
    "ProductQuerySet",
    "StockSegment",
    "StockStrategy",
]
