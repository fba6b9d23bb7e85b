"""Check that a caller's token or session still holds; end tokens."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest
from rest_framework import exceptions
from rest_framework.authentication import TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.request import Request


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
