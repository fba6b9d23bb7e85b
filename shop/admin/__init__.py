"""The back office of the shop in Django admin: products, orders and accounts."""

from shop.admin import orders, products, users

__all__ = ["orders", "products", "users"]
