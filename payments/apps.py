"""Django application `payments`."""

from importlib import metadata
from pathlib import Path

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

NAMESAKE = "django-payments"  # a distribution whose top-level package is `payments` too


class PaymentsConfig(AppConfig):
    name = "payments"
    verbose_name = _("Payments")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        refuse_namesake()
        # register the system checks, and the steps that every process must be able to resume
        from idempotency.maintenance import reaper  # noqa: PLC0415
        from payments import checks  # noqa: F401, PLC0415
        from payments.api import refunding  # noqa: F401, PLC0415
        from payments.deliveries import sending  # noqa: PLC0415

        reaper.others["deliveries"] = sending.drop


def refuse_namesake() -> None:
    """Stop the start beside django-payments: its files and ours overwrite each other."""
    try:
        other = metadata.distribution(NAMESAKE)
    except metadata.PackageNotFoundError:
        return
    raise ImproperlyConfigured(
        f"The module `payments` came from {Path(__file__).parent}, and {NAMESAKE} {other.version} has installed "
        f"another one in {other.locate_file('payments')}. Each hides or overwrites the other. Uninstall both, "
        "then install the one that this project needs: payonce-payments for this app."
    )
