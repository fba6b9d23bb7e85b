"""Labels that all pages of the admin write alike, in the reader's language."""

from datetime import UTC, datetime
from typing import Any

from django.apps import AppConfig
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override, pgettext_lazy

from idempotency.models import LedgerEntry, State


def translate_names(app: AppConfig) -> None:
    """Let names and help texts of an app's models and fields follow the reader's language.

    Done here and not where they are declared, so that no migration holds them.
    """
    for model in app.get_models():
        for attribute in ("verbose_name", "verbose_name_plural"):
            setattr(model._meta, attribute, pgettext_lazy("model", english(model._meta, attribute)))
        for field in model._meta.local_fields:
            for attribute in ("verbose_name", "help_text"):
                if words := english(field, attribute):
                    setattr(field, attribute, gettext_lazy(words))


def english(named: Any, attribute: str) -> str:
    """Return a name or help text as it was declared, whatever language is active."""
    with override(None):
        return str(getattr(named, attribute))


def label(field: str) -> Any:
    """Return the name of a model's field, as `translate_names` has it."""
    return gettext_lazy(field.replace("_", " "))


def utc(at: datetime | None) -> str:
    """Write date and time to the second; a dash for None."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else "-"


def utc_time(at: datetime) -> str:
    """Write the time of day to the second."""
    return f"{at.astimezone(UTC):%H:%M:%S}"


def condition(entry: LedgerEntry) -> str:
    """Return the entry's state, or `stalled`: running by its row, but its lease is over."""
    over = entry.lease_until is not None and entry.lease_until <= timezone.now()
    return _("stalled") if entry.state == State.RUNNING and over else entry.get_state_display()
