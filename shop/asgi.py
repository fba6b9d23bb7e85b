"""ASGI entry point: `uvicorn shop.asgi:application`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup(set_prefix=False)  # as get_asgi_application does it

from django.db import connections  # noqa: E402  after the settings are loaded

from payments.checks import must_be_sound  # noqa: E402
from shop.platform.handlers import TextASGIHandler  # noqa: E402

for database in connections.settings.values():  # each request has a thread, and so a connection, of its own
    database["CONN_MAX_AGE"] = 0
application = TextASGIHandler()
must_be_sound()  # a wrong key stops the start, and not the first shopper
