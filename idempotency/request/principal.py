"""Caller of a keyed call: their name, the first part of a key's scope, and their session."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.cached_db import SessionStore as CachedSession
from django.contrib.sessions.backends.db import SessionStore as DatabaseSession
from django.contrib.sessions.backends.signed_cookies import SessionStore as SignedCookie
from django.db import router
from django.db.models import Model
from django.utils.crypto import salted_hmac
from django.utils.module_loading import import_string

from idempotency.conf import config
from idempotency.errors import AnonymousRefused
from idempotency.request.keys import digest_of

ANONYMOUS = "anonymous"
NAMED = "named:"
NAME_MAX = 255  # characters: method and route stand beside it in the ledger
WITHIN = " in:"  # between a caller and their tenant
_NO_NAMES = ("anonymous", "anonymoususer", "guest", "none", "null")
# how a program spells that there is nobody, or a prefix with nothing behind it
NOBODY = re.compile(rf"(?:.*[:/|=])?(?:{'|'.join(_NO_NAMES)}|undefined)|[a-z]+:", re.IGNORECASE | re.DOTALL)
# credentials that say no more than that there is one, or none
OF_ALL = frozenset({"true", "yes", "ok", "valid", "authenticated", *_NO_NAMES})
ANSWERED = "_idempotency_answered"
OF_ONE_TOKEN = frozenset({"exp", "iat", "jti", "nbf"})  # claims that differ in the next one (RFC 7519, 4.1)


def principal_of(request: Any, *, by: Callable[[Any], str] | None = None) -> str:
    """Name the caller of a request, as stable as what authenticated it; within ``TENANT``.

    The first of these that exists: `named:<name>` by ``IDEMPOTENCY["PRINCIPAL"]``; `user:<id>`, by whatever token,
    or `<model>:<id>` for a user of another model than ``AUTH_USER_MODEL``; `auth:<digest>` of `request.auth`, for
    an API that knows credentials and no users, where it is not the same for all; `session:<digest>` of a guest's
    stored session; `anonymous`. It stores nothing and creates no session.

    Args:
        request: a Django or DRF request that authentication has seen.
        by: function in place of ``PRINCIPAL``.

    Raises:
        RuntimeError: the caller or the tenant has no stable name; equal keys of two callers would meet.
    """
    name, tenant = _name_of(request, by), config().tenant
    return name if tenant is None else f"{name}{WITHIN}{_tenant_of(request, tenant)}"


def is_anonymous(principal: str) -> bool:
    """Check if nothing names a principal."""
    return principal.partition(WITHIN)[0] == ANONYMOUS


def anonymous_like(principal: str) -> str:
    _, within, tenant = principal.rpartition(WITHIN)
    return f"{ANONYMOUS}{within}{tenant}" if within and config().tenant is not None else ANONYMOUS


def _tenant_of(request: Any, path: str) -> str:
    tenant = import_string(path)(request)
    if not isinstance(tenant, str) or not tenant or tenant.split() != [tenant]:
        raise RuntimeError(
            f"IDEMPOTENCY['TENANT'] ({path}) must return a tenant's name without white space, not {tenant!r}."
        )
    return tenant


def _name_of(request: Any, by: Callable[[Any], str] | None) -> str:
    if by is not None:
        return _named(by(request), source="The view's principal function")
    if (path := config().principal) is not None:
        return _named(import_string(path)(request), source=f"IDEMPOTENCY['PRINCIPAL'] ({path})")
    user = _user_of(request)
    number = getattr(user, "pk", None)
    if number is not None:
        return f"{_kind_of(user.__class__, settings.AUTH_USER_MODEL)}:{number}"
    auth = getattr(request, "auth", None)
    if auth and _names_somebody(auth):
        return f"auth:{_digest_of(auth)}"
    if user is not None:
        raise RuntimeError(
            "This request's user has no primary key to identify it by. Name a function in "
            "IDEMPOTENCY['PRINCIPAL']."
        )
    key = _session_key_of(request)
    return ANONYMOUS if key is None else f"session:{sha256(key.encode()).hexdigest()[:32]}"


def _user_of(request: Any) -> Any:
    user = getattr(request, "user", None)
    return user if user is not None and user.is_authenticated else None


@lru_cache(maxsize=64)
def _kind_of(user: type[Any], of_project: str) -> str:
    """Name a class of users: ``user`` for the project's, else its model."""
    if not issubclass(user, Model):
        return "user"
    own: Any = user._meta
    models = (own.concrete_model, *own.get_parent_list())
    return "user" if apps.get_model(of_project)._meta.concrete_model in models else models[0]._meta.label_lower


def _named(name: Any, *, source: str) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_MAX:
        raise RuntimeError(f"{source} must return the caller's name, 1 to {NAME_MAX} characters, not {name!r}.")
    return f"{NAMED}{name}"


def _refuse_nobody(request: Any, principal: str) -> None:
    """Refuse a name that every guest has; a user may be called so."""
    name = principal.removeprefix(NAMED).partition(WITHIN)[0]
    if NOBODY.fullmatch(name) and getattr(_user_of(request), "pk", None) is None:
        raise RuntimeError(
            f"The principal function names this caller {name!r}, as it would every other guest, and equal keys of "
            "two would meet. Return what only this one has, or raise PermissionDenied."
        )


def caller_of(request: Any, *, by: Callable[[Any], str] | None = None) -> str:
    """Name the caller of a call that needs a key, as `principal_of`.

    Raises:
        AnonymousRefused: nothing names the caller, and ``IDEMPOTENCY["ANONYMOUS"]`` is ``"refuse"``.
        RuntimeError: as `principal_of`; or the name is one that every guest has.
    """
    principal = principal_of(request, by=by)
    if principal.startswith(NAMED):
        _refuse_nobody(request, principal)
    if config().anonymous == "refuse" and is_anonymous(principal):
        raise AnonymousRefused
    return principal


def _session_key_of(request: Any) -> str | None:
    """Return the key of a stored session; None where the cookie names none that exists."""
    session = getattr(request, "session", None)
    if session is None:
        return None
    if isinstance(session, SignedCookie):
        raise RuntimeError(
            "A session of signed cookies has another key after each change, so it does not identify the caller. "
            "Use another SESSION_ENGINE, or name a function in IDEMPOTENCY['PRINCIPAL']."
        )
    session.keys()  # loads it: only then does Django forget a key under which nothing is stored
    key: str | None = session.session_key
    return key


def _names_somebody(auth: Any) -> bool:
    """Check if a credential can differ between callers; True, say, is that of all valid ones."""
    if isinstance(auth, (str, bytes)):
        text = auth.decode(errors="replace") if isinstance(auth, bytes) else auth
        return bool(text.strip()) and text.lower() not in OF_ALL
    if isinstance(auth, Mapping):
        return any(map(_names_somebody, auth.values()))
    if isinstance(auth, (list, tuple, set, frozenset)):
        return any(map(_names_somebody, auth))
    return not (auth is None or isinstance(auth, bool)) and bool(getattr(auth, "is_authenticated", True))


def _digest_of(auth: Any) -> str:
    """Digest a credential, keyed as it may be short; all tokens of a `sub` have the same."""
    claims = auth if isinstance(auth, Mapping) else getattr(auth, "__dict__", {})
    if isinstance(auth, Model):
        text = f"{auth._meta.label} {auth.pk}"
    elif claims.get("sub"):
        text = json.dumps({name: claims.get(name) for name in ("iss", "sub")}, sort_keys=True, default=_text_of)
    elif of_one_token := OF_ONE_TOKEN.intersection(claims):
        raise RuntimeError(
            f"request.auth holds claims with {min(of_one_token)!r} and without 'sub': they change with the token, "
            "and a retry would be another caller's. Name a function in IDEMPOTENCY['PRINCIPAL']."
        )
    elif isinstance(auth, Mapping):
        text = json.dumps(dict(auth), sort_keys=True, default=_text_of)
    else:
        text = _text_of(auth)
    return salted_hmac("idempotency.request.principal", text, algorithm="sha256").hexdigest()[:32]


def _text_of(auth: Any) -> str:
    if isinstance(auth, bytes):
        return auth.hex()
    nameless: Any = object
    if type(auth).__str__ is nameless.__str__ and type(auth).__repr__ is nameless.__repr__:
        raise RuntimeError(
            f"request.auth holds a {type(auth).__name__}, which has no text that is the same everywhere. Give it "
            "a __str__, or name a function in IDEMPOTENCY['PRINCIPAL']."
        )
    return str(auth)


def is_in_our_database(store: type[Any]) -> bool:
    """Check if sessions of this class are only rows, which can share a commit with the ledger."""
    is_database = issubclass(store, DatabaseSession) and not issubclass(store, CachedSession)
    return is_database and router.db_for_write(store.get_model_class()) == config().database


def was_answered(session: Any, *, scope: str, key: str) -> bool:
    """Check if an anonymous call of this scope and key began this session."""
    answered = session.get(ANSWERED)
    return answered is not None and answered == digest_of(scope=scope, key=key)


class Visit:
    """Session of a request; a replay leaves the browser the session of the first answer.

    Args:
        request: Django's, or None; before the handler runs.
    """

    def __init__(self, request: Any) -> None:
        self._request: Any = request if hasattr(request, "session") else None
        self._key: str | None = request.session.session_key if self._request else None

    def save(self) -> None:
        """Save the changes in the open transaction; SessionMiddleware would, after the commit.

        A session without a key is left to the middleware: until its cookie arrives, it cannot be used again.
        """
        session = self._changed()
        if session is not None and session.session_key is not None and is_in_our_database(type(session)):
            with suppress(UpdateError):  # logged out meanwhile: the effect counts all the same
                session.save()

    def undo(self) -> None:
        """Drop the changes of a run that was undone, in place of which another answer is given."""
        session = self._changed()
        if session is not None:
            self._request.session = type(session)(self._key)

    def look_again(self) -> None:
        """Forget what was read, where Django would save it over what the first call wrote."""
        session = self._request.session if self._request and settings.SESSION_SAVE_EVERY_REQUEST else None
        if session is not None and session.session_key is not None and not session.modified:
            self._request.session = type(session)(session.session_key)

    def note(self, key_digest: str) -> None:
        """Write the key of an anonymous call into the session that its handler began."""
        session = self._changed()
        if session is not None:
            session[ANSWERED] = key_digest

    def _changed(self) -> Any:
        session = self._request.session if self._request else None
        return session if session is not None and session.modified else None
