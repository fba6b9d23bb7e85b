"""ASGI entry point: `uvicorn shop.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_asgi_application()

from payments.checks import must_be_sound  # noqa: E402  after the settings are loaded

must_be_sound()  # a wrong key stops the start, and not the first shopper
