"""The shop as a Django app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from prometheus_client import REGISTRY  # noqa: PLC0415

        from idempotency.metrics import LedgerCollector  # noqa: PLC0415

        REGISTRY.register(LedgerCollector())
