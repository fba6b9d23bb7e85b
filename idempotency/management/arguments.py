"""Kinds of arguments of the management commands."""

import argparse
import math
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

MOST = 10**9  # PostgreSQL takes no LIMIT above 2**63 - 1, and nobody means one


def positive(text: str) -> int:
    """Parse a whole number from 1; raise argparse's error, which is shown to the operator."""
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST:,}")
    return number


def seconds(text: str) -> float:
    """Parse a finite number of seconds from 0; raise as `positive`."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError("must be a number of seconds, 0 or more")
    return number


def active_user(name: str) -> Any:
    """Find the active user whom ``--operator`` names. Raises CommandError: there is none."""
    model = get_user_model()
    user = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    if user is None or not user.is_active:  # which need not be a column
        raise CommandError(f"There is no active user {name!r}; --operator names who decides.")
    return user
