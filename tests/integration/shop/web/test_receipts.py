"""The receipt of a paid order: one e-mail, in its language, whatever runs twice."""

import asyncio
import traceback
from smtplib import SMTPDataError, SMTPException, SMTPRecipientsRefused
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import OperationalError, connection, transaction
from django.test import Client
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob
from procrastinate.jobs import Job

from payments.models import Payment, PaymentEvent
from payments.settlement import events
from shop import tasks
from shop.models import Order, Product
from shop.orders.fulfilment import OutOfOrder, on_event
from tests.integration.shop.settling import number_of, settle
from tests.integration.shop.web.test_pages import buy, pay
from tests.threads import as_a_job


def jobs(order: Order) -> int:
    queued = ProcrastinateJob.objects.filter(task_name="shop.send_receipt", args={"order_id": order.id.hex})
    return queued.count()


@pytest.fixture
def paid(request: pytest.FixtureRequest, shopper: Client, demo: User, mug: Product, channels: Any) -> Order:
    """Paid in a language, by a buyer who has an address unless the test says another."""
    shopper.cookies["django_language"], email = getattr(request, "param", ("en", "demo@example.com"))
    User.objects.update(email=email)
    buy(shopper)
    order = Order.objects.get()
    pay(shopper, order, "wechat")
    fact = channels["wechat"].pay(number_of(order.id.hex, "wechat"))
    for _ in range(2):
        settle(fact)
    assert events.handle(Payment.objects.get().pk) == 1
    return order


@pytest.mark.parametrize("paid", [(name, "demo@example.com") for name in ("en", "zh-hans")], indirect=True)
def test_it_is_queued_with_the_event_and_sent_once(paid: Order, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"  # the receipt says UTC
    assert jobs(paid) == 1
    for _ in range(3):
        tasks.send_receipt(paid.id.hex)
    (sent,) = mail.outbox
    assert sent.to == ["demo@example.com"]
    assert sent.extra_headers["Message-ID"].startswith(f"<receipt.{paid.id.hex}@")
    chinese = paid.language == "zh-hans"
    number = paid.id.hex[-6:].upper()
    assert sent.subject == (f"订单 {number} 的收据" if chinese else f"Receipt for order {number}")
    words = ("支付方式：微信支付", "合计") if chinese else ("Paid with WeChat Pay", "Total")
    paid.refresh_from_db()
    at = f"{paid.paid_at:%Y年%-m月%-d日 %H:%M}" if chinese else f"{paid.paid_at:%-d %b %Y, %H:%M}"
    for part in (*words, "1 × Mug  ¥19.90", "txn-paid-", f"/orders/{paid.id.hex}", f"{at} UTC"):
        assert part in sent.body


def refuse(patched: pytest.MonkeyPatch, refusal: Exception) -> None:
    """Have the mail server refuse every message."""

    def send(*_: Any) -> int:
        raise refusal

    patched.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", send)


def test_a_mail_server_that_is_away_is_tried_again(paid: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        refuse(patched, ConnectionRefusedError())
        with pytest.raises(ConnectionRefusedError):
            tasks.send_receipt(paid.id.hex)
    assert mail.outbox == []
    tasks.send_receipt(paid.id.hex)
    assert len(mail.outbox) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        SMTPRecipientsRefused({"demo@example.com": (550, b"no such user")}),
        SMTPDataError(554, b"<demo@example.com>: rejected"),
    ],
)
def test_an_address_that_a_mail_server_refuses_is_in_no_log(
    paid: Order, monkeypatch: pytest.MonkeyPatch, refusal: SMTPException
) -> None:
    refuse(monkeypatch, refusal)
    with pytest.raises(SMTPException, match=type(refusal).__name__) as raised:
        tasks.send_receipt(paid.id.hex)
    assert "demo@" not in "".join(traceback.format_exception(raised.value))


def test_a_receipt_outlives_the_database_and_its_worker(paid: Order) -> None:
    queued = ProcrastinateJob.objects.get(task_name="shop.send_receipt", args={"order_id": paid.id.hex})
    job = Job(id=queued.pk, queue="default", lock=None, queueing_lock=None, task_name=queued.task_name)
    assert tasks.send_receipt.retry_strategy.get_retry_decision(exception=OperationalError(), job=job)
    with connection.cursor() as cursor:  # killed as it sent
        cursor.execute("UPDATE procrastinate_jobs SET status = 'doing' WHERE id = %s", [queued.pk])

    async def take_up(worker: Any) -> int:
        async with worker.open_async():
            return await tasks.take_up_receipts.func(SimpleNamespace(app=worker), 0)

    with app.replace_connector(app.connector.get_worker_connector()) as worker:
        assert asyncio.run(take_up(worker)) >= 1
    assert ProcrastinateJob.objects.get(pk=queued.pk).status == "todo"


def test_a_worker_queues_none_for_an_event_that_it_could_not_handle(paid: Order) -> None:
    event = PaymentEvent.objects.get()

    def late() -> None:
        with pytest.raises(OutOfOrder), transaction.atomic():
            on_event(event)

    as_a_job(late)
    assert jobs(paid) == 1


@pytest.mark.parametrize("paid", [("en", "")], indirect=True)
def test_a_buyer_without_an_address_gets_none(paid: Order) -> None:
    assert jobs(paid) == 0
