"""Settings of the small API in urls.py, for servers of their own over the tests' database."""
# ruff: noqa: F403

from tests.settings import *

ROOT_URLCONF = "tests.integration.idempotency.urls"
ALLOWED_HOSTS = ["127.0.0.1"]
