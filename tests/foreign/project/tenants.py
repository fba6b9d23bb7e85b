# ruff: noqa: F403, F405
"""The project with Redis, and a schema for each tenant (django-tenants)."""

from with_redis import *

CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}}
IDEMPOTENCY = {"REDIS": "default"}
TENANT_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "notes",
    "idempotency",
]
SHARED_APPS = ["django_tenants", "customers", *INSTALLED_APPS]
INSTALLED_APPS = SHARED_APPS
TENANT_MODEL = "customers.Customer"
TENANT_DOMAIN_MODEL = "customers.Domain"
DATABASES["default"]["ENGINE"] = "django_tenants.postgresql_backend"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
MIDDLEWARE = ["doors.dying.die_when_asked", "django_tenants.middleware.main.TenantMainMiddleware", *MIDDLEWARE]
ALLOWED_HOSTS = ["*"]
