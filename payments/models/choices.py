"""Enumerations of the pure modules as choices of a model's field."""

from enum import StrEnum


def choices(values: type[StrEnum]) -> list[tuple[str, str]]:
    """Each value with the words that a person reads for it."""
    return [(value.value, value.value.replace("_", " ")) for value in values]
