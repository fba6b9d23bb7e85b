"""Accounts in the admin; only a superuser grants rights or touches who has more."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminPasswordChangeForm, SetUnusablePasswordMixin
from django.contrib.auth.models import AbstractUser, AnonymousUser, Group, Permission, User
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.text import format_lazy
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from rest_framework.authtoken.models import Token

from idempotency.admin.pages import OwnFilters, column
from shop.api import authentication

RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")
DJANGOS = {"add": "Add", "change": "Change", "delete": "Delete", "view": "View"}


class Rights(OwnFilters):
    """Permissions in the reader's language, where their rows hold English."""

    def formfield_for_manytomany(self, *args: Any, **kwargs: Any) -> Any:
        field: Any = super().formfield_for_manytomany(*args, **kwargs)  # type: ignore[misc]
        if field.queryset.model is Permission:
            field.label_from_instance = in_words
        return field


class PasswordForm(AdminPasswordChangeForm):  # type: ignore[type-arg]
    """Django's, whose help is put together once, in English."""

    usable_password_help_text: Any = format_lazy(
        '{}<ul id="id_unusable_warning" class="messagelist"><li class="warning">{}</li></ul>',
        SetUnusablePasswordMixin.usable_password_help_text,
        _("If disabled, the current password for this user will be lost."),
    )


class AccountAdmin(Rights, UserAdmin):  # type: ignore[type-arg]
    """Django's, where `auth.change_user` alone would lead to every right and account."""

    list_display = ("username", "email", "first_name", "last_name", "is_staff", "has_token")
    actions = ("end_tokens",)
    change_password_form = PasswordForm

    class Media:
        css = {"all": ["idempotency/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        accounts: QuerySet[User] = super().get_queryset(request)
        return accounts.annotate(has_token=Exists(Token.objects.filter(user=OuterRef("pk"))))

    has_token = column(lambda account: account.has_token, _("API token"), ordering="has_token", boolean=True)

    @admin.action(description=_("Take away the API tokens of selected users"), permissions=["change"])
    def end_tokens(self, request: HttpRequest, accounts: QuerySet[User]) -> None:
        if not all(self.has_change_permission(request, account) for account in accounts):
            raise PermissionDenied
        for account in accounts.filter(auth_token__isnull=False):
            self.log_change(request, account, "Took away the API token.")
        count = authentication.end_tokens(accounts)
        done = ngettext("%(count)s API token was taken away.", "%(count)s API tokens were taken away.", count)
        self.message_user(request, done % {"count": count})

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        return self.readonly_fields if _grants_rights(request) else (*self.readonly_fields, *RIGHTS)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and _is_within_reach(obj, request.user)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _is_within_reach(obj, request.user)


class RolesAdmin(Rights, GroupAdmin):
    """Groups, whose permissions are their members' rights."""

    def get_readonly_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        return self.readonly_fields if _grants_rights(request) else (*self.readonly_fields, "permissions")


def in_words(permission: Permission) -> str:
    """Name a permission: ``Payments | payment | Can refund a payment``."""
    words = DJANGOS.get(permission.codename.partition("_")[0], permission.name)
    return f"{permission.content_type} | {gettext(words)}"


def _grants_rights(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def _is_within_reach(account: User | None, by: AbstractUser | AnonymousUser) -> bool:
    """Return whether `by` has all of `account`'s rights: who sets its password becomes it.

    Counts an inactive account's rights too: it can be activated.
    """
    if account is None or by.is_superuser:
        return True
    theirs = Permission.objects.filter(Q(user=account) | Q(group__user=account))
    own = Permission.objects.filter(Q(user=by.pk) | Q(group__user=by.pk))
    return not account.is_superuser and not theirs.exclude(pk__in=own).exists()
