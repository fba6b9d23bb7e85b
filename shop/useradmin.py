"""Accounts in the admin: who has done something there is made inactive and not deleted, for his audit lines stay.

The database would refuse it (migration `payments/0011`); here it is said beforehand, and what to do instead.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.http import HttpRequest


class AccountAdmin(UserAdmin):  # type: ignore[type-arg]
    """As Django's own, but for what names somebody."""

    def get_deleted_objects(self, objs: Iterable[User], request: HttpRequest) -> Any:
        """What is told before one or several are deleted; nothing is, if anything stands against it."""
        deletable, counts, missing, protected = super().get_deleted_objects(objs, request)  # type: ignore[arg-type]
        kept = [user for user in objs if user.pk == request.user.pk or _has_lines(user)]
        if not kept:
            return deletable, counts, missing, protected
        told = [
            f"the audit lines of {user} stay, and the account with them: take away “Active” on its page instead"
            for user in kept
        ]
        return deletable, counts, set(), [*protected, *told]  # a permission would not help


def _has_lines(user: User) -> bool:
    """Whether he did something; who deletes himself would do so now."""
    return LogEntry.objects.filter(user_id=user.pk).exists()
