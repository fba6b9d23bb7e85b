# ruff: noqa: F403, F405
"""The project with Redis, and `django.tasks`."""

import django
from tasks_alone import *

_tasks = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
INSTALLED_APPS += [] if django.VERSION >= (6,) else ["django_tasks"]
TASKS = {"default": {"BACKEND": f"{_tasks}.backends.immediate.ImmediateBackend"}}
MIDDLEWARE.insert(0, "doors.dying.die_when_asked")
ROOT_URLCONF = "doors.tasks_api"
