# ruff: noqa: F403, F405
"""The three lines, without Redis."""

from settings import *

INSTALLED_APPS += ["idempotency"]
MIDDLEWARE += ["idempotency.middleware.IdempotencyMiddleware"]
IDEMPOTENCY = {"REDIS": None}
