# ruff: noqa: F403, F405
"""The two lines of a project that has tasks and no keyed view, with Redis."""

from settings import *

INSTALLED_APPS += ["idempotency"]
IDEMPOTENCY = {"REDIS": os.environ["REDIS_URL"]}
