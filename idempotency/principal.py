"""Who is asking, as the first part of a key's scope."""

import hashlib
from typing import Any

from django.contrib.sessions.backends.signed_cookies import SessionStore as SignedCookie
from django.utils.module_loading import import_string

from idempotency.conf import config


def principal_of(request: Any) -> str:
    """`user:<id>` for a logged-in caller (by whatever token), `session:<digest>` for a guest.

    The id and not the token, so that rotating a token does not lose its keys. A guest without a session gets one.
    A project whose callers are neither names a function in ``IDEMPOTENCY["PRINCIPAL"]``.

    Args:
        request: a Django or DRF request that authentication has seen.

    Raises:
        RuntimeError: nothing tells who is calling; without that, two callers' equal keys would meet.
    """
    named = config().principal
    if named is not None:
        name = import_string(named)(request)
        if not isinstance(name, str) or not name:
            raise RuntimeError(f"IDEMPOTENCY['PRINCIPAL'] ({named}) must return the caller's name, not {name!r}.")
        return f"named:{name}"
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        if user.pk is None:
            raise RuntimeError(
                "This request's user has no primary key that would tell it from others. Name a function in "
                "IDEMPOTENCY['PRINCIPAL']."
            )
        return f"user:{user.pk}"
    session = getattr(request, "session", None)
    if session is None:
        raise RuntimeError(
            "This request has neither a user nor a session, so its key cannot be scoped to its caller. Add "
            "SessionMiddleware, or name a function in IDEMPOTENCY['PRINCIPAL']."
        )
    if isinstance(session, SignedCookie):
        raise RuntimeError(
            "A session of signed cookies has another key after each change, so it does not tell who is calling. "
            "Use another SESSION_ENGINE, or name a function in IDEMPOTENCY['PRINCIPAL']."
        )
    if not session.session_key:
        session.create()
    return f"session:{hashlib.sha256(session.session_key.encode()).hexdigest()[:32]}"
