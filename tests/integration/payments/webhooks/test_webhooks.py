"""What is accepted or refused, and what each answer leaves behind (docs/contract.md, 3)."""

import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.core.exceptions import RequestDataTooBig
from django.db import IntegrityError, OperationalError, connection
from django.test import Client
from django.utils import translation

from idempotency.observability.logs import ContextFilter
from idempotency.postgres.statements import UnexpectedRows
from payments.api.views import webhook
from payments.channels import configured
from payments.models import Anomaly, Notification, Observation
from payments.sandbox import state
from payments.sandbox.stripe.documents import signature
from payments.sandbox.wechat.certificates import encrypted
from payments.sandbox.wechat.signing import signature_headers
from payments.webhooks import intake as webhooks
from shop.platform.logs import json_formatter
from tests.conftest import database_away
from tests.integration.payments.channels.conftest import counted
from tests.integration.payments.conftest import (
    Letter,
    OpenAttempt,
    fold,
    letter,
    order_of,
    payment_of,
    refund_asked,
    refunded,
)
from tests.messages import messages
from tests.payments_settings import changed

pytestmark = pytest.mark.usefixtures("no_network")

CHANNELS = ("wechat", "alipay", "stripe")
OF_EVERYBODY = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
)


def acknowledged(answer: Any, channel: str) -> bool:
    if channel == "wechat":
        return (answer.status_code, answer.content) == (204, b"")
    said = {"alipay": b"success", "stripe": b"received"}[channel]
    return (answer.status_code, answer.content, answer["Content-Type"]) == (200, said, "text/plain")


def asked_again(answer: Any, channel: str, status: int) -> bool:
    if channel == "alipay":
        return (answer.status_code, answer.content) == (200, b"fail")
    is_later = answer.get("Retry-After") == "1"
    if channel == "stripe":
        return (answer.status_code, is_later) == (400 if status == 401 else status, status >= 500)
    said = answer.json()
    return (answer.status_code, said["code"], is_later) == (status, "FAIL", status == 503) and bool(
        said["message"]
    )


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_notification_pays_the_order_and_its_copies_change_nothing(
    open_attempt: OpenAttempt, channel: str
) -> None:
    attempt = open_attempt(channel)
    first = letter(attempt, notification_id="n-1")
    made_again = letter(attempt, notification_id="n-1")  # as the platform encrypts and signs each copy
    for note in (first, first, made_again, first):
        assert acknowledged(note.send(), channel)
    payment, order = payment_of(attempt), order_of(attempt)
    assert (payment.status, payment.paid_minor, order.status) == ("succeeded", 1990, "paid")
    assert payment.version == 2, "a copy changed it"
    attempt.refresh_from_db()
    assert (attempt.status, attempt.next_query_at) == ("succeeded", None)
    assert Observation.objects.count() == 1
    row = Notification.objects.get()
    assert (row.channel, row.verdict, row.out_trade_no) == (channel, "applied", attempt.out_trade_no)
    assert row.notification_id == ("evt_n-1" if channel == "stripe" else "n-1")
    assert bytes(row.body)


def nothing_is_left() -> bool:
    return (Notification.objects.count(), Observation.objects.count(), Anomaly.objects.count()) == (0, 0, 0)


LINE = 'x"}\n{"level": "critical", "event": "forged"}\r\n\x1b[2J\x00'
SIGNED = ("Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Serial", "Wechatpay-Signature", "Stripe-Signature")


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(json_formatter())
    handler.addFilter(ContextFilter())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("channel", CHANNELS)
def test_what_is_not_genuine_is_refused_and_leaves_only_a_count(
    open_attempt: OpenAttempt, channel: str, logged: io.StringIO
) -> None:
    """All that makes one so is in tests/unit/payments/providers; no line of the log is forged."""
    note, refused = letter(open_attempt(channel)), {"channel": channel, "reason": "SignatureInvalid"}
    before = counted(webhooks.REFUSED, **refused)
    changed_body = note.body.replace(b"1", b"2", 1).replace(b"19.90", b"0.01")
    assert asked_again(note.send(body=changed_body), channel, 401)
    assert counted(webhooks.REFUSED, **refused) == before + 1
    for value in (LINE.translate(dict.fromkeys(range(32))), "9" * 400, "t=,v1=", "WECHATPAY/SIGNTEST/x"):
        for body in (
            LINE.encode(),
            json.dumps({LINE: LINE}).encode(),
            urlencode({"sign_type": "RSA2", LINE: LINE}).encode(),
        ):
            answer = note.send(headers=dict.fromkeys(SIGNED, value), body=body)
            assert asked_again(answer, channel, 401) or asked_again(answer, channel, 400)
    assert nothing_is_left()
    assert "forged" not in {json.loads(line)["event"] for line in logged.getvalue().splitlines()}


def signed_letter(channel: str, body: bytes) -> Letter:
    """Any body, genuinely signed by WeChat or Stripe."""
    if channel == "wechat":
        return Letter(channel, body, signature_headers(body, with_key="") | {"Content-Type": "application/json"})
    secret = state.keys().settings["STRIPE_WEBHOOK_SECRET"]
    header = signature(body, secret=secret, timestamp=int(time.time()))
    return Letter(channel, body, {"Content-Type": "application/json", "Stripe-Signature": header})


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize("channel", CHANNELS)
def test_signed_but_not_readable_is_400(open_attempt: OpenAttempt, channel: str) -> None:
    notes = [letter(open_attempt(channel), notification_id="n\x00")]
    if channel != "alipay":
        notes += [signed_letter(channel, body) for body in (b"{}", b"[" * 50_000)]
    for note in notes:
        assert asked_again(note.send(), channel, 400)
    assert nothing_is_left()


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_genuine_fact_that_fits_nowhere_is_kept_for_a_person(open_attempt: OpenAttempt, channel: str) -> None:
    """No copy would change it, so it is acknowledged; test_notifications.py has all kinds."""
    note = letter(open_attempt(channel), charged_minor=10**20)
    for _ in range(3):
        assert acknowledged(note.send(), channel)
    row, anomaly = Notification.objects.get(), Anomaly.objects.get()
    assert (row.verdict, row.attempts, row.processed_at is None) == ("anomaly", 1, False)
    assert bytes(row.body) == note.body
    assert (anomaly.kind, anomaly.reference) == ("notification_failed", row.notification_id)
    assert anomaly.detail == {"error": row.detail.partition("\n")[0], "acknowledged": "yes"}
    assert row.detail.partition(":")[0] == "OutcomeUnknown"
    assert (Observation.objects.count(), anomaly.resolved_at) == (0, None)


def raise_what_divides_by_zero(**_: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


FAULTS = {
    "runtime": RuntimeError("x"),
    "no column": RuntimeError("no \x00 such thing"),
    "rows": UnexpectedRows("x"),
    "integrity": IntegrityError("x"),
    "division": None,
}


@pytest.mark.parametrize(
    ("channel", "fault"), [("alipay", "runtime"), ("stripe", "runtime"), *(("wechat", name) for name in FAULTS)]
)
def test_any_other_failure_is_kept_and_asked_for_again(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch, channel: str, fault: str
) -> None:
    attempt, error = open_attempt(channel), FAULTS[fault]
    note = letter(attempt, notification_id="n-1")
    with monkeypatch.context() as patch:
        patch.setattr(webhooks, "settle_on", raise_what_divides_by_zero if error is None else failing(error))
        for _ in range(2):
            assert asked_again(note.send(), channel, 500)
    row, anomaly = Notification.objects.get(), Anomaly.objects.get()
    assert (row.verdict, row.attempts, row.processed_at) == ("error", 2, None)
    assert (anomaly.kind, anomaly.detail) == ("notification_failed", {"error": row.detail.partition("\n")[0]})
    assert payment_of(attempt).paid_minor == 0
    assert acknowledged(note.send(), channel)
    row.refresh_from_db()
    assert (row.verdict, row.attempts, payment_of(attempt).paid_minor) == ("applied", 3, 1990)


def failing(fault: Exception) -> Callable[..., None]:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise fault

    return fail


def test_only_post_only_so_much_and_only_if_configured(settings: Any, channels: None) -> None:
    assert Client().get("/webhooks/wechat").status_code == 405
    huge = Client().post("/webhooks/wechat", b"x" * 70_000, content_type="application/json")
    assert asked_again(huge, "wechat", 400)
    settings.PAYMENTS = changed(PROVIDERS={})
    configured.forget()
    for channel in CHANNELS:
        answer = Client().post(f"/webhooks/{channel}", b"{}", content_type="application/json")
        assert asked_again(answer, channel, 401)


def test_replaying_the_news_of_a_refund_that_has_gone_well_since(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    letter(attempt).send()
    number = "a" * 32
    refund_asked(attempt.payment_id, 990, refund_id=UUID(hex=number))
    about = {"mchid": attempt.merchant, "out_trade_no": attempt.out_trade_no, "out_refund_no": number}
    resource = encrypted(json.dumps(about).encode(), associated_data="refund")
    stuck = {"id": "wx-1", "event_type": "REFUND.ABNORMAL", "resource": resource}
    assert signed_letter("wechat", json.dumps(stuck).encode()).send().status_code == 204
    fold(refunded(attempt, 990, number), source="refund")
    row = Notification.objects.get(event_type="REFUND.ABNORMAL")
    assert webhooks.replay(row.pk) == "ignored"
    row.refresh_from_db()
    assert (row.verdict, Anomaly.objects.get().resolved_at is None) == ("anomaly", False)


@pytest.mark.parametrize("channel", CHANNELS)
def test_without_a_database_that_takes_writes_it_is_asked_for_again(
    open_attempt: OpenAttempt, channel: str
) -> None:
    note = letter(open_attempt(channel))
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    assert asked_again(note.send(), channel, 503)
    with database_away():
        answer = note.send()
    assert asked_again(answer, channel, 503)
    assert acknowledged(note.send(), channel)


def test_what_a_first_copy_and_a_duplicate_cost(open_attempt: OpenAttempt) -> None:
    """Count statements by round trip, as libpq sees them; a duplicate ends after the first.

    Of a first copy: is it stored, and what is known of its payment; then BEGIN, lock of the payment, step of the
    order, payment, fact with journal, attempt, event, notification, COMMIT.
    """
    note = letter(open_attempt(), notification_id="n-1")
    connection.close()  # where a plan is made inside a transaction, psycopg has sent its BEGIN before
    connection.connect()
    costs = []
    for _ in range(2):
        with messages(connection) as sent:
            note.send()
        costs.append(sent)
    assert costs == [[2, 9], [2]]


def test_a_session_plans_each_statement_once(open_attempt: OpenAttempt, settings: Any) -> None:
    settings.PAYMENTS = changed(WEBHOOKS={"books": {"URL": "http://127.0.0.1:1", "SECRETS": "whsec_" + "A" * 32}})
    notes = [letter(open_attempt(), charged_minor=wrong) for wrong in [None, 1] for _ in range(12)]
    connection.close()
    for note in notes:
        note.send()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement, custom_plans FROM pg_prepared_statements WHERE name LIKE 'payonce_%'")
        plans = dict(cursor.fetchall())
    assert len(plans) > 9
    assert {statement: count for statement, count in plans.items() if count > 5} == {}


def test_it_meets_nothing_that_is_for_shoppers(open_attempt: OpenAttempt, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["shop.example"]
    note = letter(open_attempt())
    refused = note.send(headers={"Host": "elsewhere.example"})
    assert (refused.status_code, refused.headers["X-Content-Type-Options"]) == (400, "nosniff")
    assert not Notification.objects.exists()
    with translation.override("zh-hans"):  # of the shopper whom this thread has served before
        answer = note.send(headers={"Host": "shop.example", "Cookie": "sessionid=a; csrftoken=b"})
        assert translation.get_language() == "en"
    assert acknowledged(answer, "wechat")
    assert answer.headers["Content-Length"] == str(len(answer.content))
    assert {"X-Request-Id", "X-Frame-Options", "X-Content-Type-Options"} < set(answer.headers)
    assert not {"Vary", "Content-Language"} & set(answer.headers)
    assert not answer.cookies


def test_a_project_that_lets_nobody_in_takes_it(open_attempt: OpenAttempt, settings: Any) -> None:
    settings.MIDDLEWARE = [*OF_EVERYBODY, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "KEYED": "marked"}  # or the first request is refused (E002)
    attempt = open_attempt()
    settings.DATABASES["default"]["ATOMIC_REQUESTS"] = True
    try:
        assert acknowledged(letter(attempt).send(), "wechat")
    finally:
        settings.DATABASES["default"]["ATOMIC_REQUESTS"] = False
    assert (payment_of(attempt).status, order_of(attempt).status) == ("succeeded", "paid")


def test_a_sender_who_hangs_up_is_no_fault_of_ours(channels: None, rf: Any) -> None:
    request = rf.post("/webhooks/stripe", b"{}", content_type="application/json")

    class HungUp:
        def read(self, *_: int) -> bytes:
            raise OSError("connection reset")

    request._stream = HungUp()
    assert webhook(request, account="stripe").status_code == 400
    assert nothing_is_left()


def test_the_setting_that_keys_all_views_leaves_notifications_out(
    open_attempt: OpenAttempt, settings: Any
) -> None:
    settings.MIDDLEWARE = [*OF_EVERYBODY, "idempotency.middleware.IdempotencyMiddleware"]
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "KEYED": "unsafe"}
    assert acknowledged(letter(open_attempt()).send(), "wechat")


@pytest.mark.parametrize(
    ("fault", "status"),
    [(OperationalError("away"), 503), (RequestDataTooBig(), 413), (RuntimeError("a bug"), 500)],
)
def test_what_goes_wrong_outside_of_it_is_answered_all_the_same(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int
) -> None:
    def fail(**_: Any) -> None:
        raise fault

    note = letter(open_attempt())
    with monkeypatch.context() as broken:
        broken.setattr(webhooks, "receive", fail)
        answer = note.send()
    assert (answer.status_code, "Retry-After" in answer.headers) == (status, status == 503)
    assert note.send().status_code == 204


@pytest.mark.usefixtures("server_side_binding")
def test_where_the_driver_takes_a_statement_at_a_time(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    for _ in range(2):
        assert acknowledged(letter(attempt, notification_id="n-1").send(), "wechat")
    assert (payment_of(attempt).status, order_of(attempt).status) == ("succeeded", "paid")
    assert Notification.objects.get().verdict == "applied"
