# ruff: noqa: F403, F405
"""The project with Redis, and one mistake: the one that MISTAKE names."""

from with_redis import *

OURS = MIDDLEWARE[-1]

match os.environ["MISTAKE"]:
    case "middleware first":
        MIDDLEWARE = [OURS, *MIDDLEWARE[:-1]]
    case "cache in memory":
        IDEMPOTENCY = {"REDIS": "default"}
        CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    case "no django-redis":
        IDEMPOTENCY = {}
        CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}}
    case "one ledger for all tenants":
        TENANT_APPS = ["notes"]
    case unknown:
        raise ValueError(unknown)
