"""Who is asking, as the first part of a key's scope."""

import hashlib
from typing import Any


def principal_of(request: Any) -> str:
    """`user:<id>` for a logged-in caller (by whatever token), `session:<digest>` for a guest.

    The id and not the token, so that rotating a token does not lose its keys. A guest without a session gets one.

    Args:
        request: a Django or DRF request that authentication has seen.
    """
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user:{user.pk}"
    session = request.session
    if not session.session_key:
        session.create()
    return f"session:{hashlib.sha256(session.session_key.encode()).hexdigest()[:32]}"
