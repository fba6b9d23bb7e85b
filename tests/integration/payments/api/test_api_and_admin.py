"""Payments and refunds over the API, and everything about them in the admin."""

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.core.checks import Error
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.functions import Now
from django.test import Client, override_settings
from rest_framework.test import APIClient

from idempotency.maintenance.completer import complete_stalled
from idempotency.models import LedgerEntry
from payments.checks import check_channels, check_payments
from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable
from payments.models import Payment, Refund
from payments.providers.base import RefundResult, RefundStatus
from payments.reconciliation import reconcile
from payments.refunds import steps as refunds
from tests.integration.payments.conftest import Cashier, OpenAttempt, fold, paid, payment_of
from tests.payments_settings import changed, limited


@pytest.fixture
def payment(open_attempt: OpenAttempt) -> Payment:
    attempt = open_attempt()
    fold(paid(attempt), source="query")
    return payment_of(attempt)


class Teller(Cashier):
    """A provider whose refunds end as `answers` says, one after the other; then they succeed."""

    def __init__(self, payment: Payment) -> None:
        super().__init__("wechat", merchant=payment.attempts.get().merchant)
        self.answers: list[Any] = []
        self.asked: list[str] = []

    def refund(self, **given: Any) -> RefundResult:
        self.asked.append(given["out_refund_no"])
        answer = self.answers.pop(0) if self.answers else RefundStatus.SUCCEEDED
        if isinstance(answer, BaseException):
            raise answer
        self.refund_is = answer
        return super().refund(**given)


@pytest.fixture
def teller(payment: Payment, monkeypatch: pytest.MonkeyPatch) -> Teller:
    made = Teller(payment)
    monkeypatch.setattr("payments.attempts.calling.provider", {"wechat": made}.__getitem__)
    return made


@pytest.fixture
def caller(shopper: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(shopper)
    return client


def refund(caller: APIClient, payment: Payment, amount_minor: int, key: str = "r1") -> Any:
    return caller.post(
        f"/api/v1/payments/{payment.id.hex}/refunds",
        {"amount_minor": amount_minor, "reason": "too small"},
        format="json",
        headers={"Idempotency-Key": key},
    )


def test_a_payment_is_shown_to_its_owner_and_to_staff_alone(caller: APIClient, payment: Payment) -> None:
    address = f"/api/v1/payments/{payment.id.hex}"
    shown = caller.get(address).json()
    assert set(shown) == {
        *("id", "order", "status", "version", "amount", "paid_minor", "refunded_minor", "attempts"),
    }
    assert (shown["status"], shown["amount"]) == ("succeeded", {"amount_minor": 1990, "currency": "CNY"})
    assert set(shown["attempts"][0]) == {"channel", "method", "out_trade_no", "status", "next_action"}
    stranger = APIClient()
    assert stranger.get(address).status_code == 401
    other = User.objects.create_user("bob")
    stranger.force_authenticate(other)
    assert stranger.get(address).json()["code"] == "payment_not_found"
    other.user_permissions.add(Permission.objects.get(codename="view_payment"))
    stranger.force_authenticate(User.objects.get(pk=other.pk))
    assert stranger.get(address).status_code == 200


@pytest.mark.parametrize("atomic_requests", [False, True])
def test_a_refund_and_its_replay(
    caller: APIClient, payment: Payment, teller: Teller, monkeypatch: pytest.MonkeyPatch, atomic_requests: bool
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    first, again = refund(caller, payment, 500), refund(caller, payment, 500)
    assert (first.status_code, first.json()["status"], first.json()["amount_minor"]) == (201, "succeeded", 500)
    assert first.content == again.content
    assert again["Idempotent-Replayed"] == "true"
    assert len(teller.asked) == 1
    payment.refresh_from_db()
    assert (payment.status, payment.refunded_minor) == ("partially_refunded", 500)


def test_an_amount_is_a_whole_number_of_what_is_left(caller: APIClient, payment: Payment, teller: Teller) -> None:
    for amount_minor in ("5", "1_000", 1.0, True, None):
        assert refund(caller, payment, amount_minor).json()["code"] == "validation_failed"
    assert refund(caller, payment, 1991).json()["code"] == "refund_exceeds_paid"
    assert refund(caller, payment, 0, key="r2").status_code == 400
    assert teller.asked == []


@pytest.mark.parametrize(
    ("outcome", "counted", "status"),
    [
        (RefundStatus.SUCCEEDED, "finished", "succeeded"),
        (ProviderRejected("NOT_ENOUGH", "no money"), "uncertain", "uncertain"),  # the first may still be made
        (ProviderUnavailable("refused"), "failed", "uncertain"),
    ],
)
def test_a_refund_that_nobody_retries_is_gone_on_with(
    caller: APIClient, payment: Payment, teller: Teller, outcome: Any, counted: str, status: str
) -> None:
    teller.answers = [OutcomeUnknown("timed out"), outcome]
    assert refund(caller, payment, 500).status_code == 202
    assert complete_stalled(idle_seconds=0) == {counted: 1}
    assert Refund.objects.get().status == status
    assert len(set(teller.asked)) == 1


def test_a_provider_that_refuses_or_is_out_of_reach(caller: APIClient, payment: Payment, teller: Teller) -> None:
    teller.answers = [ProviderUnavailable("refused"), ProviderRejected("NOT_ENOUGH", "no money")]
    away = refund(caller, payment, 500)
    assert (away.status_code, away.json()["code"], away["Retry-After"]) == (503, "provider_unavailable", "2")
    assert refund(caller, payment, 500).json()["code"] == "refund_refused"
    assert Refund.objects.count() == 1


def test_an_abandoned_refund_is_never_made(
    caller: APIClient, payment: Payment, teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as crash:
        crash.setattr(refunds, "submit_refund", lambda refund_id, **how: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            refund(caller, payment, 500)
    call_command(
        "idempotency", "abandon", str(LedgerEntry.objects.get().pk), "--note", "withdrawn", "--operator", "eve"
    )
    assert refund(caller, payment, 500).json()["code"] == "operation_abandoned"
    Refund.objects.update(next_query_at=Now())
    assert reconcile.run_as_leader() == 0
    withdrawn = Refund.objects.get()
    assert (withdrawn.status, withdrawn.message.split()[0]) == ("failed", "abandoned")
    assert refund(caller, payment, 1990, key="r2").status_code == 201  # nothing is reserved for it any more
    assert len(teller.asked) == 1


def test_a_refund_that_the_provider_may_have_made_cannot_be_abandoned(
    caller: APIClient, payment: Payment, teller: Teller, admin_client: Client
) -> None:
    teller.answers = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):  # the process ends while its call is out
        refund(caller, payment, 500)
    entry = LedgerEntry.objects.get()
    with pytest.raises(CommandError, match="may have made it"):
        call_command("idempotency", "abandon", str(entry.pk), "--note", "withdrawn", "--operator", "eve")
    given = {"outcome": "abandoned", "note": "withdrawn", "status": "200", "body": "", "fence": entry.fence}
    address = f"/admin/idempotency/ledgerentry/{entry.pk}/decide/"
    assert "may have made it" in admin_client.post(address, given, follow=True).content.decode()
    entry.refresh_from_db()
    assert entry.state == "running"
    refunds.submit_refund(Refund.objects.get().pk)
    with pytest.raises(CommandError, match="has made this refund"):
        call_command("idempotency", "abandon", str(entry.pk), "--note", "withdrawn", "--operator", "eve")
    assert refund(caller, payment, 500).json()["status"] == "succeeded"


def test_checks_name_the_setting() -> None:
    def messages(found: list[Any]) -> str:
        assert all(isinstance(message, Error) for message in found)
        return " ".join(str(message.msg) for message in found)

    assert check_payments(None) == []
    for name in ("ORDER", "EVENTS"):
        for wrong in ("nowhere.to.be_found", "shop.orders.lifecycle.CLOSING_GRACE_SECONDS"):
            with override_settings(PAYMENTS=changed(**{name: wrong})):
                assert f"PAYMENTS[{name!r}] = {wrong!r}" in messages(check_payments(None))
    with override_settings(PAYMENTS=changed(ORDER="payments.tasks")):
        sentence = "must be a payments.Payable, or have a function return_url that takes order_id by name"
        assert sentence in messages(check_payments(None))
    with override_settings(ROOT_URLCONF="tests.integration.idempotency.urls"):
        assert "add path('…', include('payments.urls'))" in messages(check_payments(None))
    without_order = {name: value for name, value in settings.PAYMENTS.items() if name != "ORDER"}
    for mistaken, sentence in (
        ({}, "PAYMENTS needs 'BASE_URL' and 'ORDER'"),
        ([], "PAYMENTS must be a dict"),
        (without_order, "PAYMENTS needs 'ORDER': see payments.conf.Config"),
        (changed(PROVIDER={}), "PAYMENTS['PROVIDER'] is unknown; did you mean 'PROVIDERS'?"),
        (limited(CALL=1), "PAYMENTS['LIMITS']['CALL'] is unknown; did you mean 'CALLS'?"),
        (changed(REFUNDS={"ABOVE": {}}), "PAYMENTS['REFUNDS']['ABOVE'] is unknown"),
        *(
            (changed(REFUNDS={"APPROVE_ABOVE": wrong}), "['APPROVE_ABOVE'] must map currencies to minor units")
            for wrong in (50000, {"CNX": 1}, {"CNY": "500"}, {"CNY": -1}, {"CNY": True})
        ),
        *(
            (changed(BASE_URL=wrong), "PAYMENTS['BASE_URL'] must be an absolute address")
            for wrong in ("shop.example", "https://shop.example ", "https://shop.example?a=1", "https://:80/a")
        ),
        (changed(ORDER=None), "PAYMENTS['ORDER'] must be a path, as 'shop.paying.Orders', not None."),
        (changed(EVENTS=print), "PAYMENTS['EVENTS'] must be a path, as"),
        (changed(PROVIDERS=None), "PAYMENTS['PROVIDERS'] must be a dict, not NoneType."),
        (changed(PROVIDERS={"wechat": ["1"]}), "PAYMENTS['PROVIDERS']['wechat'] must be a dict, not list."),
        (changed(PROVIDERS={7: {}}), "PAYMENTS['PROVIDERS'][7]: a name is a text, as '7'."),
        (changed(PROVIDERS={"wechat": {7: ""}}), "PAYMENTS['PROVIDERS']['wechat'][7]: a name is a text"),
        (changed(WEBHOOKS={None: {}}), "PAYMENTS['WEBHOOKS'][None]: a name is a text"),
        (changed(PROVIDERS={"wechat": {"MCH_ID": 19}}), "['wechat']['MCH_ID'] must be a text, not int."),
        *((limited(CALLS=wrong), "['CALLS'] must be a whole number above zero") for wrong in (0, "8", True)),
        *((limited(WAIT_SECONDS=wrong), "['WAIT_SECONDS'] must be 0 or more") for wrong in (-1, "1")),
    ):
        with override_settings(PAYMENTS=mistaken):
            assert sentence in messages(check_payments(None))
            assert check_channels(None) == []
    with override_settings(PAYMENTS=changed(BASE_URL="HTTPS://Shop.example/de")):
        assert check_payments(None) == []
    with override_settings(PAYMENTS=changed(PROVIDERS={"wechat": {"API_V3_KEY": "", "MCH_ID": "1"}})):
        assert "WECHAT_API_V3_KEY is not set" in messages(check_channels(None))
    with override_settings(PAYMENTS=changed(PROVIDERS={"coins": {}})):
        assert "coins" in messages(check_channels(None))


def test_the_check_names_each_app_that_is_missing(settings: Any) -> None:
    settings.PAYMENTS = {}
    settings.INSTALLED_APPS = [
        name for name in settings.INSTALLED_APPS if name not in {"procrastinate.contrib.django", "rest_framework"}
    ]
    said = "\n".join(message.msg for message in check_payments(None))
    for missing in ("procrastinate.contrib.django", "rest_framework", "BASE_URL", "ORDER"):
        assert f"'{missing}'" in said
