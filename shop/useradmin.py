"""Accounts in the admin: only a superuser gives rights, and who may do more is out of others' reach."""

from typing import Any

from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import AbstractUser, AnonymousUser, Group, Permission, User
from django.db.models import Q
from django.http import HttpRequest

RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")


class AccountAdmin(UserAdmin):  # type: ignore[type-arg]
    """Django's own, where `auth.change_user` alone would be a way to every right and every account."""

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        return self.readonly_fields if _gives_rights(request) else (*self.readonly_fields, *RIGHTS)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and _is_within_reach(obj, request.user)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _is_within_reach(obj, request.user)


class RolesAdmin(GroupAdmin):
    """A group's permissions are its members' rights."""

    def get_readonly_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        return self.readonly_fields if _gives_rights(request) else (*self.readonly_fields, "permissions")


def _gives_rights(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def _is_within_reach(account: User | None, by: AbstractUser | AnonymousUser) -> bool:
    """Whether `account` may do nothing that `by` may not: who sets its password can be it.

    Counts the rights of an inactive account too, for it can be activated.
    """
    if account is None or by.is_superuser:
        return True
    theirs = Permission.objects.filter(Q(user=account) | Q(group__user=account))
    own = Permission.objects.filter(Q(user=by.pk) | Q(group__user=by.pk))
    return not account.is_superuser and not theirs.exclude(pk__in=own).exists()
