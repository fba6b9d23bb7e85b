"""Fields that several models share: enumerations of the pure modules as choices, and names of accounts."""

from enum import StrEnum
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy


def choices(values: type[StrEnum]) -> list[tuple[str, Any]]:
    """Each value with the words that a person reads for it."""
    return [(value.value, gettext_lazy(value.value.replace("_", " "))) for value in values]


def account_key() -> Any:
    """Make the column that names an account; empty for the one that is named like its channel."""
    return models.CharField(max_length=64, blank=True, default="", db_default="")
