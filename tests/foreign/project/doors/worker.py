"""Entry of Celery's worker: Django first, then the tasks."""

import django

django.setup()

from doors.tasks import app  # noqa: E402

__all__ = ["app"]
