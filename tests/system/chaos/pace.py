"""Production's timers at ten times the pace, and a clock that is wrong.

Leases, back-offs and periods only: which timer does what stays as it is. Leases are short, so a run is
overtaken whenever its process stands still or the database is away for a moment.
"""

import time
from datetime import timedelta

import attr
from django.apps import AppConfig
from django.utils import timezone

LEASE_SECONDS = 2.0
EVERY_TWO_SECONDS = "* * * * * */2"
OFTEN = ("* * * * *", "17 * * * *")  # every minute, every hour; what runs in seconds is as often as this


class Pace(AppConfig):
    """Changes the constants once everything is loaded."""

    name = "tests.system.chaos.pace"
    label = "chaos_pace"

    def ready(self) -> None:
        """In web and worker alike."""
        from procrastinate.contrib.django import procrastinate_app

        from idempotency.locks.engine import places
        from idempotency.maintenance import completer, decisions
        from payments.settlement import backoff, events
        from shop.orders import lifecycle
        from shop.sales import gate

        backoff.FIRST_SECONDS, backoff.LONGEST_SECONDS = 1, 6
        events.OVERDUE_SECONDS = 3
        backoff.IN_DOUBT = timedelta(seconds=10)
        lifecycle.CLOSING_GRACE_SECONDS = 6
        gate.LEASE_SECONDS = 2.0
        places.LEASE_SECONDS = 3.0
        completer.RUNS_MAX = 200  # leases are lost all the time here
        completer.LONGEST_SECONDS = 6.0
        decisions.IDLE_SECONDS = 3.0
        completer.complete_stalled.__kwdefaults__["idle_seconds"] = 3.0
        tasks = procrastinate_app.current_app.periodic_registry.periodic_tasks
        for name, task in tasks.items():
            if task.cron in OFTEN or (task.cron.count("*/") == 1 and len(task.cron.split()) == 6):
                tasks[name] = attr.evolve(task, cron=EVERY_TWO_SECONDS)


def set_clock(*, ahead_seconds: float) -> None:
    """Let this process's clock be so much ahead (behind, if negative) of the others'.

    What the program reads through `time` and `django.utils.timezone`; leases and schedules go by the database's.
    """
    if not ahead_seconds:
        return
    true_time, true_time_ns, true_now = time.time, time.time_ns, timezone.now
    time.time = lambda: true_time() + ahead_seconds
    time.time_ns = lambda: true_time_ns() + round(ahead_seconds * 1e9)
    timezone.now = lambda: true_now() + timezone.timedelta(seconds=ahead_seconds)
