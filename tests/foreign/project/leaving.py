# ruff: noqa: F403, F405
"""The project on its way out: no decorator, but still the app and its middleware."""

from left import *

INSTALLED_APPS += ["idempotency"]
MIDDLEWARE += ["idempotency.middleware.IdempotencyMiddleware"]
IDEMPOTENCY = {"REDIS": os.environ["REDIS_URL"]}
