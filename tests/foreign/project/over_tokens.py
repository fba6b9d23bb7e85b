# ruff: noqa: F403, F405
"""The project with Redis, and tokens and guests of REST framework."""

from with_redis import *

MIDDLEWARE.insert(0, "doors.dying.die_when_asked")
ROOT_URLCONF = "doors.token_api"
