"""Orders with any primary key: one payment each, found under the key that the project gave; old rows stay theirs."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from django.utils import timezone

from payments.api.serializers import represent_payment
from payments.attempts import closing, opening
from payments.conf import order_columns
from payments.models import Attempt, Payment
from shop.models import Order
from tests.integration.payments.conftest import fold, paid, payment_of
from tests.integration.test_upgrades import fresh_database, restore
from tests.payments_settings import changed

pytestmark = pytest.mark.django_db(transaction=True)

asked: list[tuple[Any, str]] = []


class Orders:
    """Orders of a project; `asked` has what settlement asks them."""

    model: Any

    @staticmethod
    def on_payment(*, order_id: object, event: str, work: object) -> bool:
        asked.append((order_id, event))
        return True

    @staticmethod
    def return_url(*, order_id: object) -> str:
        return f"/orders/{order_id}"


class Numbered(Orders):
    model = Group


class Named(Orders):
    model = Session


class Unique(Orders):
    model = Order


KEY = uuid4()
KEYS: list[tuple[type[Orders], Any, Any, str]] = [
    (Numbered, 7, "007", "7"),
    (Named, "no. 7/2026", "no. 7/2026", "no. 7/2026"),
    (Named, str(KEY), KEY, str(KEY)),
    (Unique, KEY, str(KEY), KEY.hex),
]


def pay(order_id: object) -> Attempt:
    with transaction.atomic():
        return opening.open_attempt(
            order_id=order_id,
            **{"owner_id": None, "amount_minor": 5, "currency": "CNY", "channel": "wechat", "description": "7"},
            expires_at=timezone.now() + timedelta(minutes=30),
        )


@pytest.mark.usefixtures("channels")
@pytest.mark.parametrize(("adapter", "key", "written", "number"), KEYS)
def test_an_order_has_one_payment_however_its_key_is_written(
    settings: Any, admin_client: Client, adapter: type[Orders], key: Any, written: Any, number: str
) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.{adapter.__name__}")
    asked.clear()
    attempt = pay(key)
    assert pay(written) == attempt
    Attempt.objects.update(status="uncertain")
    payment = payment_of(attempt)
    assert represent_payment(payment)["order"] == number
    for page in ("", "payments/payment/", f"payments/payment/{payment.pk}/change/"):
        assert number[-6:].upper() in admin_client.get(f"/admin/{page}").content.decode()
    assert b"1 payment" in admin_client.get("/admin/payments/payment/", {"q": number}).content
    fold(paid(attempt), source="notification")
    assert (payment_of(attempt).status, asked) == ("succeeded", [(key, "paid")])
    assert closing.close_payment(order_id=written) is closing.CloseResult.PAID


def test_a_key_that_no_order_can_have_is_refused(settings: Any) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered")
    with pytest.raises(ValidationError):
        order_columns("seven")


@pytest.fixture
def former() -> Iterator[BaseDatabaseWrapper]:
    """A database of the version before, with its rows, and migrated."""
    with fresh_database() as wrapper:
        restore(wrapper)
        call_command("migrate", "payments", "0002", database="former", verbosity=0)
        yield wrapper


AS_BEFORE = """
INSERT INTO payments_payment (id, order_id, amount_minor, currency, status, version, paid_minor, refunded_minor,
    reserved_minor) VALUES (%s, %s, 1, 'CNY', 'pending', 1, 0, 0, 0)
"""


def test_rows_of_the_version_before_keep_their_order_and_it_may_go_on(former: BaseDatabaseWrapper) -> None:
    rows = "SELECT to_jsonb(payment) - 'order_key' FROM payments_payment AS payment ORDER BY id"
    refused: dict[str, list[object]] = {
        "UPDATE payments_payment SET order_key = '7'": [],
        "UPDATE payments_payment SET order_id = gen_random_uuid()": [],
    }
    with former.cursor() as cursor:
        cursor.execute(rows)
        before = cursor.fetchall()
        call_command("migrate", database="former", verbosity=0)
        cursor.execute(rows)
        assert (cursor.fetchall(), len(before) > 0) == (before, True)
        order = Order.objects.using("former").filter(pk__in=Payment.objects.using("former").values("order_id"))[0]
        cursor.execute(AS_BEFORE, [uuid4(), KEY])
        payment = Payment.objects.using("former").get(**order_columns(order.pk))
        assert (payment.order_no, payment.order_id) == (order.pk.hex, order.pk)
        assert Payment.objects.using("former").get(**order_columns(KEY)).order_no == KEY.hex
        for statement, values in (refused | {AS_BEFORE: [uuid4(), order.pk]}).items():
            with pytest.raises(IntegrityError):
                cursor.execute(statement, values)
