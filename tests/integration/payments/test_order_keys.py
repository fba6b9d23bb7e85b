"""Orders with any primary key: one payment each, found under the project's key."""

import re
import sys
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.sessions.models import Session
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import OperationalError, connection, transaction
from django.db.models import Manager, QuerySet, Value
from django.db.models.functions import Concat
from django.test import Client, RequestFactory
from django.utils import timezone

import payments
from idempotency.postgres.statements import UnitOfWork
from payments.admin.pages import link_to_order
from payments.api.serializers import PaymentSerializer
from payments.attempts import closing
from payments.channels import configured
from payments.checks import check_payments, check_rows
from payments.conf import orders
from payments.errors import (
    AmountChanged,
    MethodUnavailable,
    OrderNotPayable,
    RefundExceedsPaid,
)
from payments.models import Attempt, Payment, Refund
from payments.order_keys import order_columns
from payments.providers.base import FactKind
from shop.models import Order
from tests.integration.payments.conftest import fold, letter, opened_for, paid, payment_of
from tests.integration.shop.provider import ScriptedProvider
from tests.messages import messages
from tests.payments_settings import Stays, changed
from tests.threads import at_once, in_background, waiting_for_locks

asked: list[tuple[Any, str]] = []
SOLD_OUT = (0, "sold out")


class Orders(Stays):
    """Orders of a project; `asked` has what settlement asks of them."""

    def is_payable(self, order: Any) -> bool:
        return SOLD_OUT not in asked

    def mark_paid(self, order: Any) -> bool:
        assert connection.in_atomic_block
        asked.append((order.pk, "paid"))
        return True

    def mark_refunded(self, order: Any) -> None:
        assert connection.in_atomic_block
        asked.append((order.pk, "refunded"))


class Numbered(Orders):
    model = Group


class Priced(Numbered):
    price_minor = 500

    def amount(self, order: Any) -> int:
        return self.price_minor


class Forgetful(Numbered):
    def mark_paid(self, order: Any) -> bool:
        return None  # type: ignore[return-value]


class Reading(Numbered):
    def is_payable(self, order: Group) -> bool:
        return order.name == "open"

    def mark_paid(self, order: Group) -> bool:
        others = {"twice": 2 * order.pk}.get(order.name, order.pk)
        return bool(Group.objects.get(pk=others))


class Saving(Reading):
    def mark_paid(self, order: Group) -> bool:
        Group.objects.create(pk=70 + order.pk, name=f"voucher for {order.pk}")
        order.name = "paid"
        order.save(update_fields=["name"])  # as save() of a model with further fields does
        Group(pk=9, name="missing").save(force_update=order.pk == 8)
        return True


class Loading(Reading):
    """It saves the whole order, which somebody deletes between."""

    deleted: ClassVar[list[bool]] = []

    def mark_paid(self, order: Group) -> bool:
        loaded = Group.objects.get(pk=order.pk)
        self.deleted.append(in_background(lambda: delete_now(order.pk)).result())
        loaded.name = "paid"
        loaded.save()
        return True


def delete_now(key: int) -> bool:
    """Delete it in a session of its own; return whether nobody holds it."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '100ms'")
            return bool(Group.objects.filter(pk=key).delete()[0])
    except OperationalError:
        return False


class Marking(Reading):
    def mark_paid(self, order: Group) -> bool:
        waiting = Group.objects.filter(pk=order.pk, name="open")
        return waiting.update(name=Concat("name", Value(", paid"))) == 1


class Named(Orders):
    model = Session


class Unique(Orders):
    model = Order


KEY = UUID("01930f9e-0000-7000-8000-000000000007")
KEYS: list[tuple[type[Orders], Any, Any, str]] = [
    (Numbered, 7, "007", "7"),
    (Named, "no. 7/2026", "no. 7/2026", "no. 7/2026"),
    (Named, str(KEY), KEY, str(KEY)),
    (Unique, KEY, str(KEY), KEY.hex),
]


@pytest.mark.usefixtures("channels")
@pytest.mark.parametrize(("adapter", "key", "written", "number"), KEYS)
def test_an_order_has_one_payment_however_its_key_is_written(
    settings: Any, admin_client: Client, adapter: type[Orders], key: Any, written: Any, number: str
) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.{adapter.__name__}")
    asked.clear()
    more: dict[type[Any], dict[str, Any]] = {
        Session: {"expire_date": timezone.now()},
        Order: {"user": User.objects.get(), "total_minor": 500, "currency": "CNY", "expires_at": timezone.now()},
    }
    adapter.model._default_manager.create(pk=key, **more.get(adapter.model, {}))
    attempt = opened_for(key)
    assert opened_for(written) == attempt
    Attempt.objects.update(status="uncertain")
    payment = payment_of(attempt)
    assert PaymentSerializer(payment).data["order"] == number
    for page in ("", "payments/payment/", f"payments/payment/{payment.pk}/change/"):
        assert number[-6:].upper() in admin_client.get(f"/admin/{page}").content.decode()
    assert b"1 payment" in admin_client.get("/admin/payments/payment/", {"q": number}).content
    fold(paid(attempt), source="notification")
    assert (payment_of(attempt).status, asked) == ("succeeded", [(key, "paid")])
    assert closing.close_payment(order_id=written) is closing.CloseResult.PAID


@pytest.mark.parametrize(
    ("adapter", "order"),
    [(Numbered, Group(pk=7, name="a room")), (Named, Session(pk="no. 7", expire_date=timezone.now()))],
)
def test_the_projects_own_code_has_an_order_paid_and_gives_the_money_back(
    settings: Any, provider: ScriptedProvider, adapter: type[Orders], order: Any
) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.{adapter.__name__}")
    asked.clear()
    order.save()
    assert payments.status(order) is None
    attempt = payments.start(order, method="wechat.native", request=RequestFactory().get("/"))
    assert (attempt, attempt.status) == (payments.start(order, method="wechat"), "pending")
    assert payments.status(order) is payments.PaymentStatus.PENDING
    with pytest.raises(RefundExceedsPaid):
        payments.refund(order)
    fold(provider.pay(attempt.out_trade_no), source="notification")
    number = uuid4()
    parts = [payments.refund(order, amount_minor=200, refund_id=number) for _ in range(2)]
    assert [(part.pk, part.status) for part in parts] == [(number, "succeeded")] * 2
    assert (payments.status(order), asked) == (payments.PaymentStatus.PARTIALLY_REFUNDED, [(order.pk, "paid")])
    assert payments.refund(order).amount_minor == 300
    assert (payments.status(order), asked[1:]) == (payments.PaymentStatus.REFUNDED, [(order.pk, "refunded")])
    with pytest.raises(RefundExceedsPaid):
        payments.refund(order)


@pytest.fixture
def bought(settings: Any, provider: ScriptedProvider) -> list[Group]:
    """Two orders that are paid."""
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered")
    asked.clear()
    found = [Group.objects.create(name=name) for name in ("a room", "another")]
    for order in found:
        fold(provider.pay(payments.start(order, method="wechat").out_trade_no), source="notification")
    return found


def test_the_number_of_another_refund_is_refused(bought: list[Group]) -> None:
    """Else the caller would take that refund for its own."""
    number = uuid4()
    payments.refund(bought[0], amount_minor=200, refund_id=number)
    with pytest.raises(ValueError, match="another payment's refund"):
        payments.refund(bought[1], amount_minor=100, refund_id=number)
    with pytest.raises(ValueError, match="is the number of a refund of 200, not 100"):
        payments.refund(bought[0], amount_minor=100, refund_id=number)
    assert payments.refund(bought[0], refund_id=number).amount_minor == 200
    assert [payments.status(order) for order in bought] == ["partially_refunded", "succeeded"]


def test_a_concurrent_duplicate_gets_the_same_refund(bought: list[Group]) -> None:
    number = uuid4()
    with transaction.atomic():
        list(Payment.objects.select_for_update())
        copies = [in_background(lambda: payments.refund(bought[0], refund_id=number).pk) for _ in range(2)]
        while waiting_for_locks() < len(copies) and not any(copy.done() for copy in copies):
            pass
    assert [copy.result() for copy in copies] == [number, number]
    assert payments.status(bought[0]) is payments.PaymentStatus.REFUNDED


def test_a_long_reason_is_cut(bought: list[Group]) -> None:
    assert payments.refund(bought[0], amount_minor=200, reason="x" * 81).reason == "x" * 80
    assert payments.refund(bought[0], reason=None).reason == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [0, -1, True, 9.0, "1", Decimal("5.00")])
def test_what_is_no_amount_is_neither_charged_nor_given_back(
    settings: Any, bought: list[Group], monkeypatch: pytest.MonkeyPatch, amount: Any
) -> None:
    """Cut to an int, an amount in yuan would be charged in fen."""
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Priced")
    monkeypatch.setattr(Priced, "price_minor", amount)
    third = Group.objects.create(name="a third")
    error = ValueError if amount in (0, -1) else TypeError
    for call in (
        partial(payments.refund, bought[0], amount_minor=amount),
        partial(payments.start, third, method="wechat"),
    ):
        with pytest.raises(error, match=f"^An amount is .* minor units, not {re.escape(repr(amount))}"):
            call()
    assert (Payment.objects.filter(reserved_minor=0).count(), Attempt.objects.count()) == (2, 2)


@pytest.mark.parametrize(
    ("method", "returned", "sentence"),
    [
        ("describe", None, "a text, not None."),
        ("owner", 7, "a user or None, not int."),
        ("owner", Group(pk=7), "a user or None, not Group."),
    ],
)
def test_a_method_of_an_adapter_that_returns_something_else_is_named(
    settings: Any,
    provider: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    returned: Any,
    sentence: str,
) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Priced")
    monkeypatch.setattr(Priced, method, lambda self, order: returned)
    with pytest.raises(TypeError, match=rf"^Priced\.{method} must return {sentence}$"):
        payments.start(Group.objects.create(name="a room"), method="wechat.native")
    assert Attempt.objects.count() == 0


def test_a_guests_order_has_no_owner_and_a_long_description_is_cut(
    settings: Any, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Priced")
    monkeypatch.setattr(Priced, "owner", lambda self, order: AnonymousUser())
    monkeypatch.setattr(Priced, "describe", lambda self, order: "很" * 128)
    attempt = payments.start(Group.objects.create(name="a room"), method="wechat.native")
    assert (attempt.payment.owner_id, attempt.description) == (None, "很" * 127)


def test_a_row_of_another_model_is_no_order(bought: list[Group]) -> None:
    """A user may have the key of an order."""
    verbs: list[Any] = [payments.refund, payments.status, partial(payments.start, method="wechat")]
    for verb in verbs:
        for stranger, refusal in ((User(pk=bought[0].pk), TypeError), (Group(), ValidationError)):
            with pytest.raises(refusal):
                verb(stranger)
    assert Refund.objects.count() == 0


def test_an_amount_that_has_changed_is_not_taken(
    settings: Any, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Priced")
    order = Group.objects.create(name="a room")
    payments.start(order, method="wechat.native")
    for name, value in (("price_minor", 900), ("currency", "EUR")):
        with monkeypatch.context() as patched:
            patched.setattr(Priced, name, value)
            for method in ("wechat.native", "wechat.h5"):
                with pytest.raises(
                    AmountChanged, match=r"^The order's amount is no longer .*, or make another order\.$"
                ):
                    payments.start(order, method=method)
    assert payments.start(order, method="wechat.native").amount_minor == 500
    assert Attempt.objects.count() == 1


@pytest.mark.parametrize("is_paid", [False, True])
def test_an_attempt_whose_time_is_over_makes_room_for_another(
    settings: Any, provider: ScriptedProvider, is_paid: bool
) -> None:
    """Its link is of no use, and the timer may end it a quarter of an hour later."""
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered")
    order = Group.objects.create(name="a room")
    first = payments.start(order, method="wechat")
    Attempt.objects.update(expires_at=timezone.now())
    if is_paid:
        provider.pay(first.out_trade_no)
        with pytest.raises(payments.PaymentRefused) as refused:
            payments.start(order, method="wechat")
        assert refused.value.code == "order_paid"
    else:
        second = payments.start(order, method="wechat")
        assert (second.status, second != first) == ("pending", True)
        assert Attempt.objects.get(pk=first.pk).status == "closed"


def test_the_link_of_an_order_is_the_admins(settings: Any) -> None:
    """Whose addresses quote a key: here `_5F` is no underscore."""
    settings.IDEMPOTENCY = settings.IDEMPOTENCY | {"SUBJECT_ADMIN": {"order": "admin:payments_payment_change"}}
    assert 'href="/admin/payments/payment/A_5F5F/change/"' in link_to_order("A_5F")


def test_copies_beside_starts_take_one_step_of_the_order(settings: Any, provider: ScriptedProvider) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Marking")
    order = Group.objects.create(name="open")
    fact = provider.pay(payments.start(order, method="wechat.native").out_trade_no)

    def begin() -> None:
        with suppress(payments.PaymentRefused, payments.ProviderError):
            payments.start(order, method="wechat.h5", request=RequestFactory().get("/"))

    at_once(*[lambda: fold(fact)] * 3, *[begin] * 3)
    order.refresh_from_db()
    assert (order.name, payments.status(order), Refund.objects.count()) == ("open, paid", "succeeded", 0)


@pytest.mark.usefixtures("channels")
def test_settlement_takes_three_messages_and_what_the_project_sends(settings: Any) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered")
    for number in (7, 8):
        Group.objects.create(pk=number, name=f"room {number}")
        note = letter(opened_for(number))
        connection.ensure_connection()
        with messages(connection) as sent:
            assert note.send().status_code == 204
    assert len(sent) == 3


@pytest.mark.usefixtures("channels")
def test_a_forgotten_answer_gives_no_money_back(settings: Any) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Forgetful")
    Group.objects.create(pk=7, name="a room")
    attempt = opened_for(7)
    assert letter(attempt).send().status_code == 500
    assert (payment_of(attempt).status, Refund.objects.count()) == ("pending", 0)


def test_what_cannot_be_started_leaves_nothing(settings: Any, provider: ScriptedProvider) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered")
    asked[:] = [SOLD_OUT]
    order = Group.objects.create(name="a room")
    for refusal, method in ((OrderNotPayable, "wechat"), (MethodUnavailable, "wechat.coins")):
        with pytest.raises(refusal):
            payments.start(order, method=method)
        asked.clear()
    settings.PAYMENTS = changed(ORDER="shop.orders.lifecycle")
    with pytest.raises(ImproperlyConfigured, match=r"is no payments\.Payable"):
        payments.start(order, method="wechat")
    assert (payments.status(order), Payment.objects.count(), Attempt.objects.count()) == (None, 0, 0)


def test_an_order_that_is_gone_is_not_payable(settings: Any) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Reading")
    work = UnitOfWork()
    assert orders().on_payment(order_id=7, event="payable", work=work) is False
    Group.objects.create(pk=7, name="open")
    assert orders().on_payment(order_id=7, event="payable", work=work) is True


@pytest.mark.usefixtures("channels")
def test_an_order_that_is_being_paid_cannot_be_deleted(settings: Any) -> None:
    """The adapter's `save()` would insert it again, and nobody would see that order."""
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Loading")
    Group.objects.create(pk=7, name="open")
    assert letter(opened_for(7)).send().status_code == 204
    assert (Loading.deleted, Group.objects.get().name) == ([False], "paid")


class Replica:
    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return "late" if model is Group else None


class Hiding(Manager[Group]):
    """Of tenants, or of what is marked as deleted."""

    def get_queryset(self) -> QuerySet[Group]:
        return super().get_queryset().using("default").none()


@pytest.mark.usefixtures("channels")
@pytest.mark.parametrize(("adapter", "hides"), [("Reading", False), ("Saving", False), ("Reading", True)])
def test_the_money_of_an_order_that_is_gone_goes_back(
    settings: Any, monkeypatch: pytest.MonkeyPatch, adapter: str, hides: bool
) -> None:
    """Reading a gone order would fail for ever; another missing row is a mistake, a hidden order keeps its money."""
    settings.PAYMENTS = changed(ORDER=f"{__name__}.{adapter}")
    Group.objects.create(pk=8, name="open" if hides else "twice")
    if hides:
        settings.DATABASE_ROUTERS, hiding = [Replica()], Hiding()
        hiding.model = Group
        monkeypatch.setattr(Group._meta, "base_manager", hiding)
    gone, there = opened_for(7), opened_for(8)
    assert (letter(gone).send().status_code, letter(there).send().status_code) == (204, 500)
    assert Refund.objects.get().attempt == gone
    if not hides:
        assert list(Group.objects.values_list("name", flat=True)) == ["twice"]  # nothing else that it wrote stays


NO_METHODS = "must have describe, is_payable, mark_paid, mark_refunded, model, return_url."
MISTAKES: dict[str, tuple[type[Any], dict[str, Any], str]] = {
    "no model": (Orders, {}, "must have model."),
    "a model that is a text": (Numbered, {"model": "auth.Group"}, "must have model."),
    "no methods": (payments.Payable, {"amount": lambda self, order: 500}, NO_METHODS),
    "a number of minutes": (Numbered, {"lives": 30}, "needs lives, a timedelta above zero."),
    "a small currency": (Numbered, {"currency": "cny"}, "needs currency, three capital letters of ISO 4217."),
    "an argument": (Numbered, {"__init__": lambda self, bank: None}, "must be made without arguments."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_of_an_adapter_is_a_message(settings: Any, name: str) -> None:
    """Of `check` with a database too, which `migrate` runs."""
    base, members, sentence = MISTAKES[name]
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Mistaken")
    assert not check_rows(None, databases=["default"])  # `migrate` runs it
    assert "cannot be imported" in check_payments(None)[0].msg
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "Mistaken", type("Mistaken", (base,), members), raising=False)
        assert not check_rows(None, databases=["default"])
        (message,) = check_payments(None)
    assert sentence in message.msg


class Lazy(Numbered):
    def __init__(self) -> None:
        raise AssertionError("a check asked the database")

    model = property(lambda self: Group)  # type: ignore[assignment]
    lives = property(lambda self: timedelta(hours=1))  # type: ignore[assignment]


def test_an_adapter_is_checked_without_being_made(settings: Any) -> None:
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Lazy")
    assert check_payments(None) == []


@pytest.mark.usefixtures("channels")
def test_rows_are_checked_beside_a_mistake_elsewhere(settings: Any) -> None:
    """A worker has no addresses, and its project may have silenced that."""
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered")
    opened_for(7)
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered", PROVIDERS={})
    settings.ROOT_URLCONF = "payments.sandbox.urls"
    configured.forget()
    assert [message.id for message in check_payments(None)] == ["payments.E006"]
    assert [message.id for message in check_rows(None, databases=["default"])] == ["payments.W003"]


def test_orders_of_another_database_are_refused(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would stay paid where the payment is rolled back, and then refuse it."""
    settings.PAYMENTS = changed(ORDER=f"{__name__}.Numbered")
    monkeypatch.setattr("payments.checks.router.db_for_write", lambda model: "orders")
    (message,) = check_payments(None)
    assert (message.id, "written to 'orders'" in message.msg) == ("payments.E002", True)


@pytest.mark.parametrize("name", ["is_payable", "mark_paid", "mark_refunded", "mark_closed"])
def test_an_async_step_is_refused_where_it_is_written(name: str) -> None:
    """A coroutine is true: the money would be taken, and the order never marked."""

    async def step(self: Any, order: Any) -> bool:
        raise NotImplementedError

    for bases, members in (((Numbered,), {name: step}), ((type("Mixin", (), {name: step}), Numbered), {})):
        with pytest.raises(TypeError, match=rf"^Waiting\.{name} is async\. Write def"):
            type("Waiting", bases, members)


@pytest.mark.parametrize(
    ("adapter", "key", "impossible"), [(f"{__name__}.Numbered", 7, "seven"), ("shop.orders.lifecycle", KEY, "7")]
)
def test_a_key_of_another_type_is_refused(settings: Any, adapter: str, key: object, impossible: str) -> None:
    """Without a model it is a UUID."""
    settings.PAYMENTS = changed(ORDER=adapter)
    assert order_columns(str(key)) == order_columns(key)
    with pytest.raises(ValidationError):
        order_columns(impossible)


class Members(Numbered):
    model = User


def warned_of_orders() -> list[str]:
    return [found.msg for found in check_rows(None, databases=["default"]) if found.id == "payments.W005"]


def test_an_order_of_a_former_model_is_none_of_todays(settings: Any, provider: ScriptedProvider) -> None:
    rooms, members = (f"{__name__}.{one.__name__}" for one in (Numbered, Members))
    settings.PAYMENTS = changed(ORDER=rooms)
    room, member = Group.objects.create(pk=7, name="a room"), User.objects.create(pk=7, username="ann")
    first = payments.start(room, method="wechat")

    settings.PAYMENTS = changed(ORDER=members)
    asked.clear()
    assert ["of 'auth.group', but" in warning for warning in warned_of_orders()] == [True]
    assert payments.status(member) is None
    with pytest.raises(RefundExceedsPaid):
        payments.refund(member)
    assert closing.close_payment(order_id=7) is closing.CloseResult.NONE
    second = payments.start(member, method="wechat")
    assert (second, second.payment) == (payments.start(member, method="wechat"), payment_of(second))
    assert second.payment != first.payment
    with pytest.raises(ImproperlyConfigured, match=r"is of auth\.group 7, but .* is of auth\.user"):
        fold(provider.pay(first.out_trade_no))
    assert asked == []
    fold(provider.pay(second.out_trade_no))
    assert (payments.status(member), asked) == ("succeeded", [(7, "paid")])

    settings.PAYMENTS = changed(ORDER=rooms)
    fold(provider.fact(FactKind.PAID, first.out_trade_no))
    Payment.objects.filter(pk=second.payment_id).update(order_model="auth.group")  # as after a renaming
    assert warned_of_orders() == []
    assert (payments.status(room), asked[1:]) == ("succeeded", [(7, "paid")])
