"""Django application `payments`."""

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    name = "payments"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # register the system checks, and the steps that every process must be able to resume
        from payments import checks  # noqa: F401, PLC0415
        from payments.api import refunding  # noqa: F401, PLC0415
