"""Functions that tests call once, in this process and in others."""

import signal
import uuid
from typing import Any

from django.contrib.auth.models import Group

from idempotency.protocol import heartbeat

WORK = f"from idempotency import once; from {__name__} import early_beats, place_and_hang"  # for another process


def place(name: str = "order") -> dict[str, Any]:
    """One row, with a name that never collides: how many there are is how often it happened."""
    return {"id": Group.objects.create(name=f"{name} {uuid.uuid4()}").pk}


def place_and_hang() -> dict[str, Any]:
    """Do it, say so, and go on for as long as the process lives."""
    made = place("held")
    print("inside", flush=True)
    signal.pause()
    return made


def early_beats() -> None:
    """Renew each lease at once, and again and again."""
    heartbeat.RENEW_AFTER = 0.01
