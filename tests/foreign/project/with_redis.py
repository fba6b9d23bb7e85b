# ruff: noqa: F403, F405
"""The three lines, with Redis."""

from settings import *

INSTALLED_APPS += ["idempotency"]
MIDDLEWARE += ["idempotency.middleware.IdempotencyMiddleware"]
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}}
