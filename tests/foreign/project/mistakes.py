# ruff: noqa: F403, F405
"""The project with Redis, and one mistake: the one that MISTAKE names."""

from with_redis import *

match os.environ["MISTAKE"]:
    case "cache in memory":
        IDEMPOTENCY = {"REDIS": "default"}
        CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    case "no django-redis":
        IDEMPOTENCY = {}
        CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}}
    case unknown:
        raise ValueError(unknown)
