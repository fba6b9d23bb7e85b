"""Parts of a demo: public logins, and the sandbox's way to a page of Alipay's.

The logins are open while `DEBUG` is on. The first `migrate` without it shuts them, should a database that `make
run` filled ever go into service.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_GET
from rest_framework.authtoken.models import Token

from payments.channels import configured
from payments.models import Attempt

USERS = (
    # name (also the password), API token, superuser
    ("demo", "demo-token", False),
    ("other", "other-token", False),
    ("admin", "", True),
)


def open_logins() -> int:
    """Make the demo users, reopen those that were shut; return how many were made."""
    return sum(_open(*user) for user in USERS)


def shut_logins(sender: Any = None, *, using: str, **signal: Any) -> None:
    """Shut the demo users without `DEBUG`, unless their password was changed."""
    tables = connections[using].introspection.table_names()
    if settings.DEBUG or not {User._meta.db_table, Token._meta.db_table} <= {*tables}:
        return
    for name, _, _ in USERS:
        user = User.objects.using(using).filter(username=name, is_active=True).first()
        if user is not None and user.check_password(name):
            user.is_active = False
            user.set_unusable_password()
            user.save(using=using, update_fields=["is_active", "password"])
    Token.objects.using(using).filter(key__in=[token for _, token, _ in USERS if token]).delete()


@require_GET
def shopper_is_led(request: HttpRequest, *, attempt_id: UUID) -> HttpResponse:
    """Redirect the sandbox, which knows the number alone, to the provider's page."""
    attempt = get_object_or_404(Attempt, pk=attempt_id)
    if not configured.renderer(attempt.account, attempt.next_action_type).redirects:
        raise Http404
    return redirect(attempt.next_action_url)


def _open(name: str, token: str, superuser: bool) -> bool:
    user, created = User.objects.get_or_create(
        username=name,
        defaults={"is_superuser": superuser, "is_staff": superuser, "email": f"{name}@example.com"},
    )
    if created or not (user.is_active or user.has_usable_password()):
        user.is_active = True
        user.set_password(name)
        user.save(update_fields=["is_active", "password"])
    if token:
        Token.objects.get_or_create(user=user, defaults={"key": token})
    return created
