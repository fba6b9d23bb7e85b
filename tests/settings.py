"""The project's settings as tests see them; servers and secrets come from tests/servers.py."""

import os

from shop.devserver import redis_url

os.environ.setdefault("DEBUG", "1")
REDIS_SECONDS = redis_url.TIMEOUT_SECONDS  # of the shop
redis_url.TIMEOUT_SECONDS = 2.0  # on a busy machine Redis is slow, and not away

from shop.settings import *  # noqa: E402, F403

DEBUG = False
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_AUTOREFRESH = True
DATABASES["default"]["CONN_MAX_AGE"] = 0  # noqa: F405  under ASGI every request has a thread of its own
CATALOGUE_SECONDS = 0  # tests write products behind the shop's back
