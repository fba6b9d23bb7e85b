"""ASGI entry point: `uvicorn shop.asgi:application`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup(set_prefix=False)  # as get_asgi_application does it

from payments.checks import must_be_sound  # noqa: E402  after the settings are loaded
from shop.platform.handlers import TextASGIHandler  # noqa: E402

application = TextASGIHandler()
must_be_sound()  # a wrong key stops the start, and not the first shopper
