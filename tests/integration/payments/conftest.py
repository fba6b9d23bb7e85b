"""Real providers with real keys, orders with open attempts, and genuine notifications."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from payments.attempts import opening as attempts
from payments.attempts import submission
from payments.channels import configured
from payments.models import Attempt, Payment, Refund
from payments.operations.figures import trial_balance
from payments.providers.actions import Payer, PayMethod
from payments.providers.base import Fact, FactKind, RefundResult, RefundStatus
from payments.refunds import steps as refunds
from payments.sandbox.delivery import NOTIFICATIONS
from payments.settlement.decision import Outcome
from payments.settlement.settle import settle
from payments.settlement.state import BY_HAND
from shop.models import Order, Product
from tests.integration.shop.conftest import placed
from tests.integration.shop.provider import ScriptedProvider
from tests.payments_settings import changed
from tests.sandbox import channels_at

CHANNELS = ("wechat", "alipay")
AMOUNT_MINOR = 1990
OpenAttempt = Callable[..., Attempt]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each test committed rows of its own, which other threads and sessions see.

    Of providers and channels only those that ask for it: the others fail where their code begins to query.
    """
    if item.path.parent.name not in {"providers", "channels"} and item.get_closest_marker("django_db") is None:
        item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture
def channels(platform: Any, settings: Any) -> Iterator[None]:
    """Both channels configured; at their addresses nobody listens."""
    settings.PAYMENTS = changed(PROVIDERS=channels_at("http://127.0.0.1:1"))
    configured.forget()
    yield
    configured.forget()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("an outbound call was made")

    monkeypatch.setattr(httpx.Client, "send", send)


@pytest.fixture(params=[True, False], ids=["aware", "naive"])
def zoned(request: pytest.FixtureRequest, settings: Any) -> None:
    """Either kind of project: its times are aware, or naive in its own zone."""
    settings.USE_TZ, settings.TIME_ZONE = request.param, "Asia/Shanghai"


@pytest.fixture
def shopper(transactional_db: None) -> User:
    return User.objects.create_user("ann", password="ann")


@pytest.fixture
def mug(transactional_db: None) -> Product:
    return Product.objects.create(sku="mug", name="Mug", price_minor=AMOUNT_MINOR, stock=100)


@pytest.fixture
def new_order(shopper: User, mug: Product) -> Callable[[], Order]:
    return lambda: placed(shopper, mug=1)


@pytest.fixture
def open_attempt(new_order: Callable[[], Order], channels: None) -> Callable[..., Attempt]:
    """An attempt that the provider has open, or may have; of a new order unless one is given."""

    def make(
        channel: str = "wechat",
        order: Order | None = None,
        *,
        status: str = "pending",
        method: PayMethod | None = None,
    ) -> Attempt:
        attempt = opened(order or new_order(), channel, method)
        Attempt.objects.filter(pk=attempt.pk).update(
            status=status,
            next_action_type="qr_code",
            next_action_url="weixin://x",
            submitted_at=timezone.now(),
        )
        attempt.refresh_from_db()
        return attempt

    return make


@pytest.fixture
def settled(open_attempt: OpenAttempt) -> Callable[[], Payment]:
    """A payment that is paid, refunded in part, and refunded whole."""

    def make() -> Payment:
        attempt = open_attempt()
        number = attempt.out_trade_no[:31]
        fold(paid(attempt), refunded(attempt, 90, f"{number}p"), refunded(attempt, 1900, f"{number}x"))
        return payment_of(attempt)

    return make


class Cashier(ScriptedProvider):
    """A scripted provider: a refund becomes what `refund_is` says, and no question knows one."""

    refund_is: RefundStatus = RefundStatus.SUCCEEDED

    def refund(self, *, out_trade_no: str, out_refund_no: str, amount_minor: int, **rest: Any) -> RefundResult:
        self._begin("refund", out_refund_no)
        if self.refund_is is not RefundStatus.SUCCEEDED:
            return RefundResult(status=self.refund_is)
        fact = refunded(Attempt.objects.get(pk=out_trade_no), amount_minor, out_refund_no)
        return RefundResult(status=RefundStatus.SUCCEEDED, facts=(fact,))

    def query_refund(self, *, out_trade_no: str, out_refund_no: str, reference: str = "") -> RefundResult:
        self._begin("query_refund", out_refund_no)
        return RefundResult(status=RefundStatus.NOT_FOUND)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> ScriptedProvider:
    made = Cashier("wechat")
    original = made._begin

    def begin(method: str, number: str) -> None:
        assert not connection.in_atomic_block, "a provider was called inside a transaction"
        original(method, number)

    monkeypatch.setattr(made, "_begin", begin)
    monkeypatch.setattr("payments.attempts.calling.provider", {"wechat": made}.__getitem__)
    return made


@pytest.fixture
def attempt(new_order: Callable[[], Order], provider: ScriptedProvider) -> Attempt:
    return opened(new_order())


def opened(
    order: Order, channel: str = "wechat", method: PayMethod | None = None, *, owned: bool = True
) -> Attempt:
    with transaction.atomic():
        return attempts.open_attempt(
            order_id=order.id,
            owner_id=order.user_id if owned else None,
            amount_minor=order.total_minor,
            currency="CNY",
            channel=channel,
            description="Mug",
            expires_at=timezone.now() + timedelta(minutes=30),
            method=method,
            payer=Payer(client_ip="203.0.113.7"),
        )


def opened_for(order_id: object, account: str | None = None) -> Attempt:
    """An attempt of 5.00 CNY for an order of any project's."""
    with transaction.atomic():
        return attempts.open_attempt(
            order_id=order_id,
            **{"owner_id": None, "amount_minor": 500, "currency": "CNY", "channel": "wechat", "description": "7"},
            expires_at=timezone.now() + timedelta(minutes=30),
            account=account,
        )


@pytest.fixture
def paid_payment(attempt: Attempt, provider: ScriptedProvider) -> Payment:
    submission.submit_attempt(attempt.id)
    fold(provider.pay(attempt.out_trade_no), source="notification")
    return Payment.objects.get()


def payment_of(attempt: Attempt) -> Payment:
    return Payment.objects.get(pk=attempt.payment_id)


def fold(*facts: Fact, source: str = "notification") -> list[Outcome]:
    return [outcome for fact in facts for outcome in settle(fact, source=source)]


def order_of(attempt: Attempt) -> Order:
    return Order.objects.get(pk=payment_of(attempt).order_id)


def number_of(attempt: Attempt) -> str:
    """The provider's number, as `letter` and `paid` have it."""
    return f"4200{int(attempt.out_trade_no[-16:], 16):020d}"


def paid(attempt: Attempt, **changed: Any) -> Fact:
    """The fact that the attempt was paid."""
    known: dict[str, Any] = {
        "kind": FactKind.PAID,
        "channel": attempt.channel,
        "merchant": attempt.merchant,
        "out_trade_no": attempt.out_trade_no,
        "provider_txn_id": number_of(attempt),
        "amount_minor": attempt.amount_minor,
        "currency": "CNY",
    }
    return Fact(**{**known, **changed})


def refunded(attempt: Attempt, amount_minor: int, number: str, *, implies_payment: bool = False) -> Fact:
    """The fact that part of it went back."""
    more: dict[str, Any] = {
        "paid_txn_id": number_of(attempt),
        "paid_minor": attempt.amount_minor,
    }
    return paid(
        attempt,
        kind=FactKind.REFUNDED,
        provider_txn_id=f"5030{number}",
        amount_minor=amount_minor,
        out_refund_no=number,
        **(more if implies_payment else {}),
    )


def recorded_by_hand(attempt: Attempt) -> Attempt:
    """Have an operator record that it was paid, and its provider report that afterwards."""
    fold(paid(attempt, provider_txn_id=attempt.out_trade_no), source=BY_HAND)
    assert fold(paid(attempt)) == [Outcome.DUPLICATE]
    return attempt


def gone_back_whole(attempt: Attempt) -> Attempt:
    """Have it paid and refunded by hand in two parts: their sum is notified, the bill has each."""
    went_back = {"kind": FactKind.REFUNDED, "paid_txn_id": number_of(attempt)}
    fold(paid(attempt), paid(attempt, **went_back, provider_txn_id=attempt.out_trade_no, is_whole=True))
    parts = {"portal-1": 1000, "portal-2": attempt.amount_minor - 1000}
    for number, minor in parts.items():
        part = paid(attempt, **went_back, provider_txn_id=number, out_refund_no=number, amount_minor=minor)
        assert fold(part, source="bill") == [Outcome.DUPLICATE]
    return attempt


def refund_asked(payment_id: Any, amount_minor: int = 500, **more: Any) -> Refund:
    """Ask for a refund, as the API does before it sends one."""
    with transaction.atomic():
        return refunds.request_refund(payment_id=payment_id, amount_minor=amount_minor, reason="", **more)


def books(currency: str = "CNY") -> dict[str, int]:
    """Balances of the journal that are not zero, those at providers as one; together they are."""
    found = Counter[str]()
    for row in trial_balance():
        found[row.account.partition(":")[0]] += row.balance_minor if row.currency == currency else 0
    assert sum(found.values()) == 0
    return {name: minor for name, minor in found.items() if minor}


def closed(attempt: Attempt) -> Fact:
    """The fact that it ended unpaid."""
    return paid(attempt, kind=FactKind.CLOSED, provider_txn_id=attempt.out_trade_no, amount_minor=0)


@dataclass(frozen=True)
class Letter:
    """A signed notification, ready to be sent any number of times."""

    channel: str
    body: bytes
    headers: dict[str, str]

    def send(self, **changed: Any) -> Any:
        body = changed.get("body", self.body)
        headers = {**self.headers, **changed.get("headers", {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        return Client(raise_request_exception=False).generic(
            "POST", f"/webhooks/{self.channel}", body, content_type=headers.pop("Content-Type"), headers=headers
        )


def trade_of(attempt: Attempt, *, charged_minor: int | None = None) -> dict[str, Any]:
    """The trade as the sandbox has it."""
    paid_at = attempt.created_at.timestamp()
    return {
        "out_trade_no": attempt.out_trade_no,
        "channel": attempt.channel,
        "transaction_id": number_of(attempt),
        "amount_minor": attempt.amount_minor,
        "charged_minor": attempt.amount_minor if charged_minor is None else charged_minor,
        "refunded_minor": 0,
        "currency": "CNY",
        "seller": "",
        "description": "Mug",
        "state": "SUCCESS",
        "paid_at": paid_at,
        "created_at": paid_at,
        "expires_at": None,
    }


def letter(attempt: Attempt, *, charged_minor: int | None = None, notification_id: str = "") -> Letter:
    """A genuine notification that the attempt was paid; each copy has the same time."""
    said = {
        "id": notification_id or secrets.token_hex(16),
        "event": "paid",
        "trade": trade_of(attempt, charged_minor=charged_minor),
        "refund": None,
        "created_at": time.time(),
    }
    headers, body = NOTIFICATIONS[attempt.channel](said)
    return Letter(attempt.channel, body, headers)
