"""Keep the session of a keyed call in step with its answer, so that a replay leads where the first answer led."""

from contextlib import suppress
from typing import Any

from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.cached_db import SessionStore as CachedSession
from django.contrib.sessions.backends.db import SessionStore as DatabaseSession
from django.db import DEFAULT_DB_ALIAS, router

from idempotency.request.keys import digest_of

ANSWERED = "_idempotency_answered"


def is_in_our_database(store: type[Any]) -> bool:
    """Whether sessions of this class are rows that can share a commit with the ledger, and nothing beside them."""
    is_database = issubclass(store, DatabaseSession) and not issubclass(store, CachedSession)
    return is_database and router.db_for_write(store.get_model_class()) == DEFAULT_DB_ALIAS


def was_answered(session: Any, *, scope: str, key: str) -> bool:
    """Whether an anonymous call of this scope and key began this session."""
    answered = session.get(ANSWERED)
    return answered is not None and answered == digest_of(scope=scope, key=key)


class Visit:
    """What a handler does to the session of its request.

    Args:
        request: Django's, or None; before the handler runs.
    """

    def __init__(self, request: Any) -> None:
        self._request: Any = request if hasattr(request, "session") else None
        self._key: str | None = request.session.session_key if self._request else None

    def save(self) -> None:
        """Save the changes inside the open transaction; SessionMiddleware would save them after the commit.

        A session without a key is left to the middleware: until its cookie arrives, nobody can come back to it.
        """
        session = self._changed()
        if session is not None and session.session_key is not None and is_in_our_database(type(session)):
            with suppress(UpdateError):  # logged out meanwhile: the effect counts all the same
                session.save()

    def undo(self) -> None:
        """Forget the changes of a run that was undone, in place of which another's answer is given."""
        session = self._changed()
        if session is not None:
            self._request.session = type(session)(self._key)

    def note(self, key_digest: str) -> None:
        """Write the key of an anonymous call into the session that its handler began."""
        session = self._changed()
        if session is not None:
            session[ANSWERED] = key_digest

    def _changed(self) -> Any:
        session = self._request.session if self._request else None
        return session if session is not None and session.modified else None
