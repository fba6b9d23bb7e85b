"""Fields that several models share: enumerations of the pure modules as choices, and texts."""

from enum import StrEnum
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy


def choices(values: type[StrEnum]) -> list[tuple[str, Any]]:
    """Each value with the words that a person reads for it."""
    return [(value.value, gettext_lazy(value.value.replace("_", " "))) for value in values]


def text(max_length: int, *, help_text: str = "") -> Any:
    """Make a column of text that is empty by default, in the database too."""
    return models.CharField(max_length=max_length, blank=True, default="", db_default="", help_text=help_text)
