"""Release of a lock by force, from the admin and the command, with a line in the admin's log."""

import logging
from typing import Any

from django.apps import apps
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from idempotency.admin.lock_display import in_words
from idempotency.admin.lock_kinds import KINDS
from idempotency.locks import LockError, Owner
from idempotency.models import LedgerEntry

log = logging.getLogger(__name__)


def release_by_force(kind: str, name: str, owner: Owner | None, *, user: Any, note: str) -> tuple[bool, str]:
    """Take a lock from its holder, or end a latch or limit, and log who did it and why.

    The admin's log and the sentence are in the operator's language, the log of the process in English.

    Args:
        owner: as it was shown; a later holder keeps the lock.
        user: who decides.

    Returns:
        Whether the server replied, and a sentence.
    """
    replied, fault = True, ""
    if owner is None:
        done, gone = gettext_noop("ended"), gettext_noop("not in use any more")
    else:
        done, gone = gettext_noop("released by force"), gettext_noop("not held by it any more")
    try:
        with KINDS[kind].opened(name) as lock:
            if not KINDS[kind].end(lock, owner):
                done = gone
    except LockError as error:
        replied, done, fault = False, gettext_noop("release by force without success"), f" ({error})"
    what, became = f"{kind} {name!r}", f"{_(done)}{fault}"
    change = became
    if owner is not None:
        change = _("%(done)s, held by %(holder)s") % {"done": became, "holder": in_words(owner)}
    if apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import CHANGE, LogEntry  # noqa: PLC0415  only where it is installed
        from django.contrib.contenttypes.models import ContentType  # noqa: PLC0415

        LogEntry.objects.create(
            user_id=user.pk,
            content_type=ContentType.objects.get_for_model(LedgerEntry),
            object_repr=what[:200],
            action_flag=CHANGE,
            change_message=f"{change}: {note}",
        )
    held = f", held by {owner.name}" if owner else ""
    log.warning("%s: %s %s%s%s: %s", user.get_username(), what, done, fault, held, note)
    return replied, _("%(lock)s: %(done)s.") % {"lock": what, "done": became}
