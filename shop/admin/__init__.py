"""The back office of the shop in Django admin: products, orders and accounts.

Never writes tables itself: the domain modules do. Imported by Django's autodiscovery alone.
"""

from django.apps import apps

from idempotency.admin.labels import translate_names
from shop.admin import orders, products, users

translate_names(apps.get_app_config("shop"))

__all__ = ["orders", "products", "users"]
