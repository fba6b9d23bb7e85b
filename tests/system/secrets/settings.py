"""The shop as in production (DEBUG off), logging as much as it can.

Only `manage.py` runs with DEBUG, because demo data is loaded there alone; so the worker logs as it would then.
"""

import sys

from tests.settings import *  # noqa: F403

DEBUG = sys.argv[0].endswith("manage.py")
ROOT_URLCONF = "tests.system.secrets.urls"
