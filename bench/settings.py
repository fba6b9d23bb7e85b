"""The project's settings, with the bare views of `bench.urls`."""

from shop.settings import *  # noqa: F403

ROOT_URLCONF = "bench.urls"
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
LOGGING_CONFIG = None
DEBUG = False  # whatever the settings were read with
STORAGES = {  # pages are drawn without a collectstatic
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
