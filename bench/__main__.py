"""`python -m bench`: prepare a database, run every benchmark, write tables and plots under bench/results."""

import os
import secrets

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")
os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(50))
os.environ.setdefault("PUBLIC_URL", "http://127.0.0.1:8000")

import django

django.setup()

from django.core.management import call_command

from bench import keyed_post


def main() -> None:
    """Everything, one after the other: two cores carry no two benchmarks at once."""
    call_command("migrate", verbosity=0)
    keyed_post.run()


if __name__ == "__main__":
    main()
