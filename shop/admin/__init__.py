"""The back office of the shop in Django admin: products, orders and accounts.

Never writes tables itself: the domain modules do. Imported by Django's autodiscovery alone.
"""

from shop.admin import orders, products, users

__all__ = ["orders", "products", "users"]
