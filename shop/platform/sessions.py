"""Sessions in the database, where a guest's key follows from the CSRF cookie.

Looking at pages leaves no row. Every page has a form, so a browser holds that cookie (190 random bits) before it
can post, and sends it with each copy of a form: a double click, a retry and a second tab meet in one session
although none of them had a session cookie. A login makes a session of its own (`shop.web.login`), so this key is
never a member's.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends import db
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.utils import timezone
from rest_framework.permissions import SAFE_METHODS

from shop.platform.fallbacks import is_of_api
from shop.platform.middleware import Middleware

BASKET = "/basket"  # shows what a guest's form began, even if the answer with the session cookie was lost


class SessionStore(db.SessionStore):
    """Django's, for `SESSION_ENGINE`, with a key for guests whose row is still to be written.

    Args:
        session_key: of the session cookie; None without one.
        guest: returns the guest's key, used where the cookie is missing or names a session that is gone.
        looks: read the guest's row; False spares a browser without a session cookie the SQL.

    Attributes:
        has_guest: the guest's row is there, or was begun.
    """

    def __init__(
        self, session_key: str | None = None, *, guest: Callable[[], str] | None = None, looks: bool = True
    ) -> None:
        self._named, self._guest, self._looks = bool(session_key), guest, looks
        self.has_guest = False
        super().__init__(session_key or (guest and guest()))

    def load(self) -> dict[str, Any]:
        """Load the row as Django does, which forgets a lost key; then the guest's, who keeps it."""
        found: dict[str, Any] = super().load() if self._named or self._guest is None else {}
        if self._guest is None or (self._named and self.session_key):
            return found
        self._session_key = self._guest()
        if self._looks:
            found = super().load()
            self.has_guest = self.session_key is not None
            self._session_key = self._guest()
        return found

    def begin(self) -> None:
        """Write a guest's row unless an unexpired one is there."""
        if self._guest is None or self.session_key != self._guest():
            return
        self.model.objects.filter(session_key=self.session_key, expire_date__lte=timezone.now()).delete()
        self.model.objects.bulk_create([self.create_model_instance({})], ignore_conflicts=True)
        self.has_guest = True

    def save(self, must_create: bool = False) -> None:
        """Save as Django does, which updates a row that a guest may not have yet."""
        if not must_create:
            self.begin()
        super().save(must_create)


class GuestsMiddleware(Middleware):
    """Give pages a session that knows guests, and guests its cookie; after CsrfViewMiddleware."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if is_of_api(request.path_info):
            return self.get_response(request)
        cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        looks = request.method not in SAFE_METHODS or request.path_info == BASKET
        session = SessionStore(cookie, guest=lambda: guest_key(_secret(request)), looks=looks)
        request.session = session
        response = self.get_response(request)
        if "CSRF_COOKIE" in request.META:  # a cache would make its guests one
            response.headers.setdefault("Cache-Control", "private")
        if session is request.session and session.has_guest and session.session_key is not None:
            _set_cookie(response, session)
        return response


def guest_key(secret: str) -> str:
    """Compute the session key of the guest with this CSRF secret, which does not follow back."""
    return hashlib.sha256(f"shop.platform.sessions {secret}".encode()).hexdigest()[:32]


def _secret(request: HttpRequest) -> str:
    if "CSRF_COOKIE" not in request.META:
        get_token(request)  # a browser's first page, which gets the cookie
    return str(request.META["CSRF_COOKIE"])


def _set_cookie(response: HttpResponse, session: SessionStore) -> None:
    """Set the cookie alone; Django's middleware would save over another tab's session."""
    response.set_cookie(
        settings.SESSION_COOKIE_NAME,
        str(session.session_key),
        max_age=session.get_expiry_age(),
        path=settings.SESSION_COOKIE_PATH,
        domain=settings.SESSION_COOKIE_DOMAIN,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=settings.SESSION_COOKIE_HTTPONLY,
        samesite=settings.SESSION_COOKIE_SAMESITE,
    )
