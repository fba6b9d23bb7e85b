"""Users of a project's own: a name is all that they need to have."""

from typing import Any

import pytest
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.db import models
from django.test.utils import isolate_apps

from idempotency.management.base import active_user
from payments.admin import find
from payments.models import Attempt, Payment
from tests.integration.payments.conftest import payment_of


@pytest.fixture(autouse=True)
def _phones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users without an e-mail address and without a column that says who is active, over Django's table."""
    with isolate_apps("django.contrib.auth"):

        class Phone(AbstractBaseUser):
            number = models.CharField(max_length=150, unique=True, db_column="username")
            USERNAME_FIELD = "number"
            objects: Any = models.Manager()

            class Meta:
                app_label, db_table, managed = "auth", "auth_user", False

    for module in ("payments.admin.find", "idempotency.management.base"):
        monkeypatch.setattr(f"{module}.get_user_model", lambda: Phone)


def test_a_customer_is_found_by_name_and_another_search_finds_nothing(attempt: Attempt) -> None:
    payment = payment_of(attempt)
    found = [find.described(Payment.objects.all(), term) for term in ("ann", "ann@shop.example")]
    assert found == [{payment.pk}, set()]


@pytest.mark.django_db
def test_an_operator_is_a_user_who_is_active() -> None:
    ann = User.objects.create_user("ann")
    assert active_user("ann").pk == ann.pk
    with pytest.raises(CommandError, match="no active user 'bob'"):
        active_user("bob")
