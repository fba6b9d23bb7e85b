"""The shop as a Django app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ShopConfig(AppConfig):
    name = "shop"
    label = "shop"
    verbose_name = _("Shop")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.contrib.auth.models import User  # noqa: PLC0415
        from django.db.models.signals import post_migrate, pre_save  # noqa: PLC0415
        from prometheus_client import REGISTRY  # noqa: PLC0415

        from idempotency.observability.metrics import LedgerCollector  # noqa: PLC0415
        from payments.deliveries.metrics import DeliveryCollector  # noqa: PLC0415
        from shop import sales  # noqa: PLC0415
        from shop.api.authentication import end_token_with_password  # noqa: PLC0415
        from shop.devserver.demo import shut_logins  # noqa: PLC0415
        from shop.orders import lifecycle  # noqa: PLC0415

        REGISTRY.register(LedgerCollector())
        REGISTRY.register(DeliveryCollector())
        lifecycle.after_closing.append(sales.returned)  # a unit of a flash sale is on sale again
        post_migrate.connect(shut_logins, sender=self)
        pre_save.connect(end_token_with_password, sender=User)
