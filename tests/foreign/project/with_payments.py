# ruff: noqa: F403, F405
"""A project that takes payments, and has never heard of a shop."""

import json

from with_redis import *

INSTALLED_APPS += ["rest_framework", "procrastinate.contrib.django", "payments", "bookings"]
AUTH_USER_MODEL = "bookings.Guest"
ROOT_URLCONF = "bookings.urls"
PAYMENTS = {
    "BASE_URL": os.environ.get("BASE_URL", "http://127.0.0.1"),
    "ORDER": "bookings.paying.Bookings",
    "PROVIDERS": json.loads(os.environ["PROVIDERS"]),
}
