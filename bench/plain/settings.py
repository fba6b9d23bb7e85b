"""Settings of the variant named by BENCH_SETUP: the plain project, and its README's.

Every lock or lease that has a time is set to `HELD_SECONDS`, ours and the peers': longer ones only delay what a
retry finds after a crash.
"""

import os
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SETUP = os.environ["BENCH_SETUP"]
REDIS_URL = os.environ["REDIS_URL"]
HELD_SECONDS = 3

_address = urlsplit(os.environ["DATABASE_URL"])

SECRET_KEY = os.environ["SECRET_KEY"]  # one for all workers
DEBUG = False
ALLOWED_HOSTS = ["*"]
LOGGING_CONFIG = None
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "bench.plain.urls"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "rest_framework", "bench.plain"]
MIDDLEWARE: list[str] = []
if SETUP.endswith("-sessions"):
    INSTALLED_APPS.append("django.contrib.sessions")
    MIDDLEWARE.append("django.contrib.sessions.middleware.SessionMiddleware")
DATABASE: dict[str, Any] = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": _address.path.lstrip("/"),
    "USER": unquote(_address.username or ""),
    "PASSWORD": unquote(_address.password or ""),
    "HOST": parse_qs(_address.query).get("host", [_address.hostname or ""])[0],
    "PORT": str(_address.port or ""),
    "CONN_MAX_AGE": None,
}
DATABASES = {"default": DATABASE}
REDIS_CACHE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}


def _ours(**changed: Any) -> None:
    INSTALLED_APPS.append("idempotency")
    MIDDLEWARE.append("idempotency.middleware.IdempotencyMiddleware")
    globals().update(IDEMPOTENCY={"LEASE_SECONDS": HELD_SECONDS, "MARKER_SECONDS": HELD_SECONDS, **changed})


def _django_idempotency_key(lock: dict[str, Any]) -> None:
    MIDDLEWARE.append("idempotency_key.middleware.ExemptIdempotencyKeyMiddleware")
    storage = {"CLASS": "idempotency_key.storage.CacheKeyStorage", "CACHE_NAME": "default"}
    # a time-out long enough that no caller is turned away with 423; None: a replay has the first call's status
    lock = {"ENABLE": True, "TIMEOUT": 5, **lock}
    globals().update(IDEMPOTENCY_KEY={"CONFLICT_STATUS_CODE": None, "STORAGE": storage, "LOCK": lock})


def _drf_idempotency(backend: str, *, middleware: bool = True, **options: Any) -> None:
    INSTALLED_APPS.append("drf_idempotency")
    if middleware:
        MIDDLEWARE.append("drf_idempotency.middleware.IdempotencyMiddleware")
    wanted = {
        "BACKEND": f"drf_idempotency.backends.{backend}",
        "BACKEND_OPTIONS": options,
        "LOCK_TTL_SECONDS": HELD_SECONDS,
        "REQUIRE_KEY": True,
    }
    globals().update(IDEMPOTENCY=wanted)


CACHES: dict[str, dict[str, Any]] = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
if SETUP in {"ours", "ours-sessions", "thread-lock", "redis-lock"}:
    CACHES["default"] = REDIS_CACHE

match SETUP:
    case "bare" | "bare-sessions" | "aws-lambda-powertools":
        pass
    case "ours" | "ours-sessions":
        _ours()
    case "ours-no-redis":
        _ours(REDIS=None)
    case "thread-lock":
        _django_idempotency_key({"CLASS": "idempotency_key.locks.basic.ThreadLock"})
    case "redis-lock":
        redis_lock = "idempotency_key.locks.redis.MultiProcessRedisLock"
        _django_idempotency_key({"CLASS": redis_lock, "LOCATION": REDIS_URL, "NAME": "bench", "TTL": 10})
    case "drf-idempotency-redis":
        _drf_idempotency("redis.RedisBackend", url=REDIS_URL)
    case "drf-idempotency-atomic":
        _drf_idempotency("database.DatabaseBackend", middleware=False)
        DATABASE["ATOMIC_REQUESTS"] = True
    case _:
        raise RuntimeError(f"BENCH_SETUP {SETUP!r} is unknown")
