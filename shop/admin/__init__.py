"""The back office of the shop in Django admin: products, orders and accounts.

Writes new products and accounts; the domain modules write the rest. Imported by Django's autodiscovery alone.
"""

from django.apps import apps
from django.contrib import admin
from procrastinate.contrib.django.models import ProcrastinateJob

from idempotency.admin.labels import translate_names
from shop.admin import orders, products, users

translate_names(apps.get_app_config("shop"))
# in English only, and filters that read the whole table; `manage.py procrastinate shell` retries and cancels
admin.site.unregister(ProcrastinateJob)

__all__ = ["orders", "products", "users"]
