"""Who calls the API: Django REST framework's tokens, by a statement that is not built anew for each call.

Building it was the largest single part of what a replay cost. What it asks and refuses is the framework's own: an
unknown token and a user who is not active hear 401.
"""

from django.contrib.auth.models import User
from rest_framework import authentication, exceptions
from rest_framework.authtoken.models import Token

from idempotency.statements import Statement, instances, send

_FIELDS = [field.attname for field in User._meta.concrete_fields]
_COLUMNS = ", ".join(f'"user"."{field.column}"' for field in User._meta.concrete_fields)
# the two tables one after the other: to plan their join would cost the server as much again as the finding
_FIND = f"""
SELECT {_COLUMNS} FROM "{User._meta.db_table}" AS "user"
WHERE "user"."id" = (SELECT "user_id" FROM "{Token._meta.db_table}" WHERE "key" = %s)
"""  # noqa: S608


class TokenAuthentication(authentication.TokenAuthentication):
    """`Authorization: Token …`, one statement."""

    def authenticate_credentials(self, key: str) -> tuple[User, Token]:
        (rows,) = send(Statement(_FIND, [key]))
        user = next(iter(instances(User, _FIELDS, rows)), None)
        if user is None or not user.is_active:
            raise exceptions.AuthenticationFailed
        return user, Token(key=key, user=user)
