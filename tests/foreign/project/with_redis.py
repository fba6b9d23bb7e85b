# ruff: noqa: F403, F405
"""The three lines, with Redis."""

from settings import *

INSTALLED_APPS += ["idempotency"]
MIDDLEWARE += ["idempotency.middleware.IdempotencyMiddleware"]
IDEMPOTENCY = {"REDIS": os.environ["REDIS_URL"]}
