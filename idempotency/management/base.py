"""Base of the management commands, and kinds of their arguments."""

import argparse
import math
import os
import sys
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import InterfaceError, OperationalError, ProgrammingError

from idempotency.errors import UNDEFINED_TABLE

MOST = 10**9  # PostgreSQL takes no LIMIT above 2**63 - 1, and nobody means one


class LedgerCommand(BaseCommand):
    """Command that ends with a sentence, whatever goes away beneath it, and on Ctrl-C."""

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as Django does; end with exit code 130 on Ctrl-C."""
        try:
            super().run_from_argv(argv)
        except KeyboardInterrupt:
            self.stderr.write("Stopped before the end; run it again.")
            sys.exit(130)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run as Django does; CommandError and no traceback for a command that may run again."""
        try:
            printed: str | None = super().execute(*args, **options)
            self.stdout.flush()
            return printed
        except (OperationalError, InterfaceError) as error:
            raise CommandError(f"The database failed; run it again: {error}") from error
        except ProgrammingError as error:
            if getattr(error.__cause__, "sqlstate", None) != UNDEFINED_TABLE:
                raise
            raise CommandError(f"A table is missing: run `manage.py migrate`. ({error})") from error
        except (ImproperlyConfigured, UnicodeEncodeError) as error:  # an argument's bytes are no text
            raise CommandError(str(error)) from error
        except BrokenPipeError as error:
            # else the interpreter fails once more as it flushes standard output at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise CommandError("The output was closed before the end; run it again.") from error


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
