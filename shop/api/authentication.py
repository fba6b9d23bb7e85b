"""The API's callers: Django REST framework's tokens, found by a constant statement.

Building it was the largest part of a replay's cost. It refuses as the framework does: an unknown token and an
inactive user get 401.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject
from rest_framework import authentication, exceptions
from rest_framework.authtoken.models import Token
from rest_framework.request import Request

from idempotency.postgres.statements import Statement, instances, send

# columns that permissions and pages read; Django fetches the others (password, names, dates) on demand
_FIELDS = ["id", "is_superuser", "username", "is_staff", "is_active"]
# one table after the other: planning their join would double the cost
_FIND = """
SELECT id, is_superuser, username, is_staff, is_active FROM auth_user
WHERE id = (SELECT user_id FROM authtoken_token WHERE key = %s)
"""


class TokenAuthentication(authentication.TokenAuthentication):
    """`Authorization: Token …`, one statement."""

    def authenticate_credentials(self, key: str) -> tuple[User, Any]:
        (rows,) = send(Statement(_FIND, [key]))
        user = next(iter(instances(User, _FIELDS, rows)), None)
        if user is None or not user.is_active:
            raise exceptions.AuthenticationFailed
        return user, SimpleLazyObject(lambda: Token(key=key, user=user))  # hardly ever read


def let_in_again(request: Request) -> Callable[[], bool]:
    """Return a check that the caller of `request` would still be let in.

    False once the account is inactive, the token gone, or the session over: logged out, expired, or of an earlier
    password.
    """
    if isinstance(request.successful_authenticator, TokenAuthentication):
        return partial(_is_token_of_active_user, request.auth.key)
    return partial(_is_session_of, request.user.pk, request.session)


def _is_token_of_active_user(key: str) -> bool:
    try:
        TokenAuthentication().authenticate_credentials(key)
    except exceptions.AuthenticationFailed:
        return False
    return True


def _is_session_of(user_id: int | None, session: SessionBase) -> bool:
    again = HttpRequest()
    again.session = type(session)(session.session_key)
    return get_user(again).pk == user_id


def end_tokens(users: Iterable[User], *, using: str = DEFAULT_DB_ALIAS) -> int:
    """Delete the API tokens of `users`; return how many there were."""
    return Token.objects.using(using).filter(user__in=users).delete()[0]


def end_token_with_password(
    sender: Any, *, instance: User, using: str, update_fields: Collection[str] | None, **signal: Any
) -> None:
    """End the user's token before another password is saved. Receives `pre_save`.

    A login that only hashes the same password with today's parameters saves that column alone, with `_password`
    empty.
    """
    if instance._state.adding or (update_fields is not None and "password" not in update_fields):
        return
    saved_alone = update_fields is not None and set(update_fields) == {"password"}
    if saved_alone and instance._password is None and instance.has_usable_password():  # type: ignore[attr-defined]
        return
    if not User.objects.using(using).filter(pk=instance.pk, password=instance.password).exists():
        end_tokens([instance], using=using)
