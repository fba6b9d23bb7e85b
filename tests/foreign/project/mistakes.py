# ruff: noqa: F403, F405
"""The project with Redis, and one mistake: the one that MISTAKE names."""

from with_redis import *

OURS = MIDDLEWARE[-1]
REDIS_URL = os.environ["REDIS_URL"]
IN_MEMORY = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
DJANGOS_OWN = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}

match os.environ["MISTAKE"]:
    case "none":
        pass
    case "no such key":
        IDEMPOTENCY = {"WAIT": 5}
    case "no middleware":
        MIDDLEWARE.remove(OURS)
    case "middleware first":
        MIDDLEWARE = [OURS, *MIDDLEWARE[:-1]]
    case "cache in memory":
        IDEMPOTENCY = {"REDIS": "default"}
        CACHES = IN_MEMORY
    case "another client of Redis":
        IDEMPOTENCY = {"REDIS": "default"}
        CACHES = DJANGOS_OWN
    case "no cache under the alias":
        IDEMPOTENCY = {"REDIS": "default"}
        CACHES = {"shared": IN_MEMORY["default"]}
    case "no Redis named":
        del IDEMPOTENCY
    case "no Redis named, and Django's own cache of it":
        del IDEMPOTENCY
        CACHES = DJANGOS_OWN
    case "no django-redis":
        IDEMPOTENCY = {}
        CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}}
    case "one ledger for all tenants":
        TENANT_APPS = ["notes"]
    case "atomic requests":
        DATABASES["default"]["ATOMIC_REQUESTS"] = True
    case "another database":
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    case unknown:
        raise ValueError(unknown)
