# ruff: noqa: F403, F405
"""The project that has added the app and its middleware, and names no Redis."""

from settings import *

INSTALLED_APPS += ["idempotency"]
MIDDLEWARE += ["idempotency.middleware.IdempotencyMiddleware"]
