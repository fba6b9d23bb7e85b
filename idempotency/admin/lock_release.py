"""Release of a lock by force, from the admin and the command, with a line in the admin's log."""

import logging
from typing import Any

from django.apps import apps

from idempotency.admin.lock_display import in_words
from idempotency.admin.lock_kinds import KINDS
from idempotency.locks import LockError, Owner
from idempotency.models import LedgerEntry

log = logging.getLogger(__name__)


def release_by_force(kind: str, name: str, owner: Owner | None, *, user: Any, note: str) -> tuple[bool, str]:
    """Take a lock from its holder, or end a latch or limit, and log who did it and why.

    Args:
        owner: as it was shown; a later holder keeps the lock.
        user: who decides.

    Returns:
        Whether the server replied, and a sentence.
    """
    replied, done = True, "ended" if owner is None else "released by force"
    try:
        with KINDS[kind].opened(name) as lock:
            if not KINDS[kind].end(lock, owner):
                done = "not in use any more" if owner is None else "not held by it any more"
    except LockError as error:
        replied, done = False, f"release by force without success ({error})"
    what, held = f"{kind} {name!r}", "" if owner is None else f", held by {in_words(owner)}"
    if apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import CHANGE, LogEntry  # noqa: PLC0415  only where it is installed
        from django.contrib.contenttypes.models import ContentType  # noqa: PLC0415

        LogEntry.objects.create(
            user_id=user.pk,
            content_type=ContentType.objects.get_for_model(LedgerEntry),
            object_repr=what[:200],
            action_flag=CHANGE,
            change_message=f"{done}{held}: {note}",
        )
    log.warning("%s: %s %s%s: %s", user.get_username(), what, done, held, note)
    return replied, f"{what}: {done}."
