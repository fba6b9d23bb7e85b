"""Processes of the tests' own, over the tests' database."""

import os
from urllib.parse import urlsplit

from django.db import connection


def on_the_tests_database(name: str | None = None) -> dict[str, str]:
    """Build the environment of a process whose settings are the tests' and lead to their database, or that of `name`."""
    path = f"/{name or connection.settings_dict['NAME']}"
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=path).geturl()
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": url}
