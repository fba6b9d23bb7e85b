"""Django application `idempotency`."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class IdempotencyConfig(AppConfig):
    name = "idempotency"
    verbose_name = _("Idempotency")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from idempotency import checks  # noqa: PLC0415  registers the system checks
        from idempotency.postgres import transactions  # noqa: F401, PLC0415  prepares connections

        checks.start.require_django_redis()
        checks.start.require_middleware()

    def refuse_mistakes(self) -> None:
        """Stop a server that loads the middleware on mistakes that no call would say."""
        from idempotency import checks  # noqa: PLC0415

        checks.start.refuse_mistakes()
