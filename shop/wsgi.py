"""WSGI entry point: `gunicorn shop.wsgi:application`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup(set_prefix=False)  # as get_wsgi_application does it

from payments.checks import must_be_sound  # noqa: E402  after the settings are loaded
from shop.platform.handlers import TextWSGIHandler  # noqa: E402

application = TextWSGIHandler()
must_be_sound()  # a wrong key stops the start, and not the first shopper
