"""Who calls the API: Django REST framework's tokens, by a statement that is not built anew for each call.

Building it was the largest single part of what a replay cost. What it asks and refuses is the framework's own: an
unknown token and a user who is not active hear 401.
"""

from typing import Any

from django.contrib.auth.models import User
from django.utils.functional import SimpleLazyObject
from rest_framework import authentication, exceptions
from rest_framework.authtoken.models import Token

from idempotency.statements import Statement, instances, send

# what permissions and pages ask of a user; the rest (password, names, dates) is fetched if somebody wants it
_FIELDS = ["id", "is_superuser", "username", "is_staff", "is_active"]
_COLUMNS = ", ".join(f'"user"."{name}"' for name in _FIELDS)
# the two tables one after the other: to plan their join would cost the server as much again as the finding
_FIND = f"""
SELECT {_COLUMNS} FROM "{User._meta.db_table}" AS "user"
WHERE "user"."id" = (SELECT "user_id" FROM "{Token._meta.db_table}" WHERE "key" = %s)
"""  # noqa: S608


class TokenAuthentication(authentication.TokenAuthentication):
    """`Authorization: Token …`, one statement."""

    def authenticate_credentials(self, key: str) -> tuple[User, Any]:
        (rows,) = send(Statement(_FIND, [key]))
        user = next(iter(instances(User, _FIELDS, rows)), None)
        if user is None or not user.is_active:
            raise exceptions.AuthenticationFailed
        return user, SimpleLazyObject(lambda: Token(key=key, user=user))  # which hardly anybody looks at
