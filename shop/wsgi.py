"""WSGI entry point: `gunicorn shop.wsgi:application`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_wsgi_application()

from payments.checks import must_be_sound  # noqa: E402  after the settings are loaded

must_be_sound()  # a wrong key stops the start, and not the first shopper
