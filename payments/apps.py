"""Django application `payments`."""

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    name = "payments"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from payments import checks  # noqa: F401, PLC0415  registers the system checks
