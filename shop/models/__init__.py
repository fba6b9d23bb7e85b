"""What the shop keeps: products with their stock, likes, orders with their items, flash sales, coupons.

Fields, constraints and pure properties only. Writers are `shop.catalog.products` (products, likes), `shop.stock`
(what a product's row says of its stock, and its segments), `shop.orders.placing` (orders and items),
`shop.orders.lifecycle` (an order's status), `shop.sales` (sales and their purchases) and `shop.sales.coupons`;
nobody else writes. What must never happen is refused here by the database, whatever the code above does.
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
