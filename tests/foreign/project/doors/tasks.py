"""A task of Celery over Redis, acknowledged late: the broker delivers a lost process's message to another one."""

import os
import signal

from celery import Celery, Task
from django.conf import settings
from notes.models import Note
from redis import Redis

from idempotency import once

SECONDS = 60

app = Celery("notes", broker=settings.BROKER, backend=settings.BROKER)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_lost_wait=0.5,
    broker_connection_retry_on_startup=True,
)


@app.task(name="leave", bind=True)
def leave(self: Task, text: str, *, key: str, user: str, copies: int, dying: bool) -> dict[str, object]:
    """Leave a note once. All copies begin at one instant, and a dying one has committed."""
    _meet(key, copies)
    named = once("notes.leave", key=key, payload={"text": text}, principal=user, wait=SECONDS)
    result = named.run(_leave, text)
    if dying and not self.request.delivery_info["redelivered"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def _leave(text: str) -> dict[str, object]:
    note = Note.objects.create(text=text)
    return {"id": note.pk, "text": note.text}


def _meet(key: str, copies: int) -> None:
    if copies == 1:
        return
    with Redis.from_url(os.environ["REDIS_URL"]) as redis:
        if redis.incr(f"met:{key}") == copies:
            redis.rpush(f"begin:{key}", *["now"] * copies)
        if redis.blpop([f"begin:{key}"], timeout=SECONDS) is None:
            raise RuntimeError(f"{copies} copies did not meet")
