"""Decisions leave for the project's endpoints: staged, in order, signed, until answered."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob

from idempotency.maintenance import reap
from payments.checks import check_payments
from payments.deliveries import sending
from payments.deliveries.metrics import DeliveryCollector
from payments.models import Attempt, AuditEntry, Delivery, Payment
from payments.settlement import backoff
from payments.settlement.settle import settle_here
from payments.tasks import handle_events
from payments.testing.relay import Reply
from tests import pages
from tests.emptying import filled, plan_of
from tests.integration.payments.conftest import OpenAttempt, closed, fold, letter, paid, payment_of
from tests.integration.payments.deliveries.conftest import Receiver, pass_by, secret
from tests.threads import at_once

Configure = Callable[..., None]
LAST_ONES = """
BEGIN; SET LOCAL session_replication_role = replica;
INSERT INTO payments_delivery (id, endpoint, type, payment_id, sequence, data, status, attempts, log, delivered_at)
SELECT gen_random_uuid(), 'books', 'payment.paid', gen_random_uuid(), 1, '{}', 'delivered', 1, '[{}]',
    now() - interval '400 days' FROM generate_series(1, 3000);
COMMIT
"""
WHOLE = [("payment.paid", 1), ("payment.partially_refunded", 2), ("payment.refunded", 3)]


@pytest.fixture
def settled(settled: Callable[[], Payment], endpoint: Configure) -> Callable[[], Payment]:
    """Its three decisions wait for the endpoint."""
    return settled


def send() -> Counter[str]:
    return sending.send_due("books")


def statuses() -> dict[str, int]:
    found = list(Delivery.objects.values_list("status", flat=True))
    return {status: found.count(status) for status in {*found}}


def test_a_decision_is_staged_for_each_endpoint_of_it(open_attempt: OpenAttempt, endpoint: Configure) -> None:
    endpoint("closings", EVENTS=["payment.closed"])
    ended, bought = open_attempt(), open_attempt()
    fold(closed(ended), paid(bought))
    found = Delivery.objects.order_by("type", "endpoint").values_list("type", "endpoint", "payment_id", "sequence")
    assert list(found) == [
        ("payment.closed", "books", ended.payment_id, 1),
        ("payment.closed", "closings", ended.payment_id, 1),
        ("payment.paid", "books", bought.payment_id, 1),
    ]


@pytest.mark.usefixtures("endpoint")
def test_a_decision_that_is_rolled_back_leaves_nothing(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt()
    with transaction.atomic():
        settle_here(paid(attempt), source="query")
        settle_here(paid(attempt, amount_minor=1), source="query")
        assert Delivery.objects.exists()
        transaction.set_rollback(True)
    assert not Delivery.objects.exists()


@pytest.mark.usefixtures("zoned")
def test_what_a_decision_says(open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver) -> None:
    attempt = open_attempt()
    fold(paid(attempt))
    payment, row = payment_of(attempt), Delivery.objects.get()
    assert send() == {"delivered": 1}
    (event,) = receiver.received
    assert (event.id, event.header("Content-Type")) == (row.pk.hex, "application/json")
    assert event.json == {
        "type": "payment.paid",
        "timestamp": row.created_at.astimezone(UTC).isoformat(),
        "data": {
            **{"payment": payment.pk.hex, "order": payment.order_id.hex, "status": "succeeded", "sequence": 1},
            "entity": payment.pk.hex,
            **{"currency": "CNY", "paid_minor": 1990, "refunded_minor": 0},
        },
    }
    assert send() == {}


def test_an_anomaly_is_sent_once_for_each_content(
    open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver
) -> None:
    attempt = open_attempt()
    wrong, stray = paid(attempt, amount_minor=7), paid(attempt, out_trade_no="0" * 32)
    fold(wrong, wrong, stray, stray, paid(attempt, out_trade_no="0" * 32, amount_minor=8))
    assert send()["delivered"] == 4
    assert receiver.heard(attempt.payment_id) == [("anomaly.filed", 1), ("payment.closed", 2)]
    said = [event.json["data"] for event in receiver.received if event.json["type"] == "anomaly.filed"]
    assert [one["entity"] for one in said] == [
        attempt.payment_id.hex,
        *[event.id for event in receiver.received[-2:]],
    ]
    assert [(one["kind"], one["payment"], one["detail"]["amount_minor"], one["sequence"]) for one in said] == [
        ("amount_mismatch", attempt.payment_id.hex, 7, 1),
        ("unknown_trade", None, 1990, 1),
        ("unknown_trade", None, 8, 1),
    ]


def test_a_notification_costs_no_more_trips(open_attempt: OpenAttempt, endpoint: Configure, settings: Any) -> None:
    configured, counts = settings.PAYMENTS, []
    for payments in ({**configured, "WEBHOOKS": {}}, configured):
        settings.PAYMENTS, notification = payments, letter(open_attempt())
        with CaptureQueriesContext(connection) as sent:
            assert notification.send().status_code == 204
        counts.append(len(sent))
    assert counts[0] == counts[1]
    assert Delivery.objects.count() == 1


def test_a_failing_delivery_holds_up_its_payment_alone(
    settled: Callable[[], Payment], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 3600)  # the machine may be slow
    stuck, free = settled(), settled()
    receiver.answers = [503]
    assert send() == {"not delivered": 1}  # an endpoint without an answer is left alone
    assert send() == {"delivered": 3}
    assert (receiver.heard(stuck.pk), receiver.heard(free.pk)) == (WHOLE[:1], WHOLE)
    pass_by(3600)
    receiver.answers = [400, 302]
    assert send() == {"not delivered": 1}
    pass_by(3600)
    assert send() == {"not delivered": 1}
    pass_by(3600)
    assert send() == {"delivered": 3}
    assert receiver.heard(stuck.pk) == WHOLE[:1] * 3 + WHOLE
    assert len({event.id for event in receiver.received}) == 6
    log = Delivery.objects.get(payment=stuck, sequence=1).log
    said = ["answered 503", "answered 400", "answered 302", "answered 200"]
    assert [one["answer"] for one in log] == said


def test_senders_at_once_send_each_once_and_in_order(settled: Callable[[], Payment], receiver: Receiver) -> None:
    payments = [settled() for _ in range(4)]
    sent: list[int] = []

    def keep_sending() -> None:
        while statuses() != {"delivered": 12}:
            sent.append(send()["delivered"])

    at_once(*[keep_sending] * 4)
    assert (sum(sent), len(receiver.received)) == (12, 12)
    assert [receiver.heard(payment.pk) for payment in payments] == [WHOLE] * 4


def test_the_database_lets_one_of_a_payment_be_sent_and_keeps_what_it_says(settled: Callable[[], Payment]) -> None:
    settled()
    for change, named in (({"status": "sending"}, "delivery_one_at_a_time"), ({"data": {}}, "says the same")):
        with pytest.raises(Exception, match=named), transaction.atomic():
            Delivery.objects.update(**change)


def test_a_dead_claim_is_taken_over(open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver) -> None:
    fold(paid(open_attempt()))
    first = sending._claim("books")
    assert first is not None
    assert send() == {}
    pass_by(sending.LEASE.total_seconds())
    assert send() == {"delivered": 1}
    row = Delivery.objects.get()
    assert (row.attempts, [one.get("answer") for one in row.log]) == (2, [None, "answered 200"])


def test_it_is_tried_for_three_days(open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver) -> None:
    fold(paid(open_attempt()))
    receiver.answers, delays = [404] * 200, list[float]()
    while statuses() == {"waiting": 1}:
        assert send() == {"not delivered": 1}
        row = Delivery.objects.get()
        delays.append((row.due_at - datetime.fromisoformat(row.log[-1]["at"])).total_seconds())
        pass_by((row.due_at - timezone.now()).total_seconds() + 1)
    planned = [*(10 * 2**n for n in range(9)), *[3600] * 200]
    assert all(delay >= least for delay, least in zip(delays, planned, strict=False))
    assert (statuses(), 71 <= sum(delays[:-1]) / 3600 <= 72) == ({"failed": 1}, True)
    assert sending.due_endpoints() == []


@pytest.mark.parametrize(("status", "ends"), [(200, "delivered"), (410, "failed"), (400, "waiting")])
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_what_an_answer_says_beside_its_status_does_not_count(
    open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver, status: int, ends: str, encoding: str
) -> None:
    fold(paid(open_attempt()))
    large = b"x" * 3 * sending.ANSWER_BYTES_MAX
    receiver.answers = [Reply(status=status, body=large, headers={"Content-Encoding": encoding})]
    send()
    assert (statuses(), Delivery.objects.get().log[0]["answer"]) == ({ends: 1}, f"answered {status}")


def test_two_secrets_sign_until_the_file_names_one(
    open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "secrets"
    endpoint(SECRETS="", SECRETS_FILE=str(file))
    for names, signs in (("a", "a"), ("ab", "a"), ("ba", "b"), ("b", "b")):
        file.write_text("\n".join(map(secret, names)))
        receiver.secrets = [secret(signs)]
        fold(paid(open_attempt()))
        assert send() == {"delivered": 1}
    file.unlink()
    fold(paid(open_attempt()))
    assert send() == {"not delivered": 1}
    assert "cannot be read" in Delivery.objects.get(status="waiting").log[0]["answer"]


@pytest.mark.usefixtures("endpoint")
def test_the_page_configures_an_endpoint(
    open_attempt: OpenAttempt, receiver: Receiver, settings: Any, tmp_path: Path
) -> None:
    (example,) = pages.blocks("docs/how-to/send-webhooks.md")
    file = tmp_path / "books"
    file.write_text(secret("a"))
    for before, after in (
        ("https://books.example/hooks/payonce", receiver.url),
        ("/run/secrets/books", str(file)),
    ):
        example = example.replace(before, after)
    settings.PAYMENTS = pages.run(example, PAYMENTS={**settings.PAYMENTS})["PAYMENTS"]
    assert check_payments(None) == []
    fold(paid(open_attempt()))
    assert (send(), receiver.heard()) == ({"delivered": 1}, [("payment.paid", 1)])


@pytest.fixture
def operator(client: Client, transactional_db: None) -> Client:
    user = User.objects.create_user("op", password="op", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_delivery", "replay_delivery"]))
    client.force_login(user)
    return client


def test_an_operator_sends_it_again(
    open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver, operator: Client
) -> None:
    fold(paid(open_attempt()))
    send()
    row = Delivery.objects.get()
    page = f"/admin/payments/delivery/{row.pk}"
    assert "answered 200" in operator.get(f"{page}/change/").content.decode()
    assert row.pk.hex in operator.get("/admin/payments/delivery/", {"q": row.payment_id.hex}).content.decode()
    Delivery.objects.update(ends_at=timezone.now() - timedelta(days=5))
    assert operator.post(f"{page}/replay/", {"reason": " "}).status_code == 200
    assert operator.post(f"{page}/replay/", {"reason": "their books were lost"}).status_code == 302
    receiver.answers = [503]
    assert [send() for _ in range(2)] == [{"not delivered": 1}, {}]
    assert statuses() == {"waiting": 1}
    Delivery.objects.update(status="sending")
    refused = operator.post(f"{page}/replay/", {"reason": "at once"}, follow=True).content.decode()
    assert "It is being sent at this moment" in refused
    assert [event.id for event in receiver.received] == [row.pk.hex] * 2
    assert "their books were lost" in AuditEntry.objects.get().message
    operator.logout()
    assert operator.post(f"{page}/replay/", {"reason": "x"}).url.startswith("/admin/login")


def test_what_was_given_up_waits_on_the_desk(
    open_attempt: OpenAttempt, endpoint: Configure, settings: Any, operator: Client
) -> None:
    fold(paid(open_attempt()))
    assert "a decision was not delivered" not in operator.get("/admin/").content.decode()
    Delivery.objects.update(status="failed")
    row, (_, given_up) = Delivery.objects.get(), DeliveryCollector().collect()
    assert [(sample.labels, sample.value) for sample in given_up.samples] == [({"endpoint": "books"}, 1)]
    desk = operator.get("/admin/").content.decode()
    again = f"/admin/payments/delivery/{row.pk}/replay/"
    assert all(words in desk for words in ("a decision was not delivered", "books did not take it", again))
    assert "/admin/payments/delivery/?status=failed" in desk
    settings.PAYMENTS = {**settings.PAYMENTS, "WEBHOOKS": {}}
    assert again not in operator.get("/admin/").content.decode()
    refused = operator.post(again, {"reason": "it is back"}, follow=True).content.decode()
    assert "There is no endpoint books any more." in refused
    assert statuses() == {"failed": 1}


def test_the_reaper_forgets_what_ended_long_ago_but_the_number_of_the_last(
    settled: Callable[[], Payment], open_attempt: OpenAttempt, endpoint: Configure, receiver: Receiver
) -> None:
    payment, waiting = settled(), open_attempt()
    assert send() == {"delivered": 3}
    fold(paid(waiting), paid(waiting, out_trade_no="0" * 32))
    assert send()["delivered"] == 2
    Delivery.objects.filter(payment=waiting.payment_id).update(status="waiting", delivered_at=None)
    assert reap()["deliveries"] == 0
    grow_old()
    assert reap(batch=1)["deliveries"] == 4
    assert reap()["deliveries"] == 0
    left = Delivery.objects.order_by("sequence").values_list("payment_id", "sequence", "status")
    assert list(left) == [(waiting.payment_id, 1, "waiting"), (payment.pk, 3, "delivered")]
    fold(paid(Attempt.objects.get(payment=payment), provider_txn_id="another"))  # filed as an anomaly
    assert list(payment.deliveries.order_by("sequence").values_list("sequence", flat=True)) == [3, 4]
    assert sending.send_again(payment.deliveries.get(sequence=3).pk)
    send()
    grow_old()
    reap()
    assert [(row.sequence, row.status) for row in payment.deliveries.all()] == [(4, "delivered")]


def test_to_find_none_to_forget_reads_none_that_stays(transactional_db: None) -> None:
    with filled(LAST_ONES, ("payments_delivery",)), connection.cursor() as cursor:
        assert sending.drop(limit=3_000) == 3_000
        cursor.execute("VACUUM ANALYZE payments_delivery")
        plan = plan_of(*sending.old_ones()[:500].query.sql_with_params())
        assert Delivery.objects.count() == 3_000
    assert "delivery_old" in plan
    assert "Rows Removed" not in plan


def grow_old() -> None:
    """Have a year pass for all deliveries; their numbers begin with their time."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE payments_delivery DISABLE TRIGGER USER")
        for row in Delivery.objects.all():
            cursor.execute(
                "UPDATE payments_delivery SET id = %s, delivered_at = delivered_at - interval '1 year',"
                " ends_at = ends_at - interval '1 year', due_at = due_at - interval '1 year' WHERE id = %s",
                [UUID(int=row.pk.int - (365 * 86_400_000 << 80)), row.pk],
            )
        cursor.execute("ALTER TABLE payments_delivery ENABLE TRIGGER USER")


def test_what_waits_for_a_removed_endpoint(open_attempt: OpenAttempt, endpoint: Configure, settings: Any) -> None:
    for _ in range(2):
        fold(paid(open_attempt()))

    def warned() -> list[str]:
        found = run_checks(tags=["database"], databases=["default"])
        return [message.msg for message in found if message.id == "payments.W004"]

    assert warned() == []
    settings.PAYMENTS = {**settings.PAYMENTS, "WEBHOOKS": {}}
    (said,) = warned()
    assert said.startswith("Deliveries wait for PAYMENTS['WEBHOOKS']['books'], which is missing")
    reap()
    assert statuses() == {"waiting": 2}
    pass_by(4 * 86_400)
    assert sending.drop(limit=1) == 0, "given up, batch by batch, is not removed"
    assert statuses() == {"failed": 2}
    row = Delivery.objects.earliest("id")
    assert row.log[-1]["answer"] == "given up: there is no such endpoint any more"
    assert warned() == []


def test_the_worker_sends(settled: Callable[[], Payment], endpoint: Configure) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM procrastinate_jobs")
    settled()
    age, given_up = DeliveryCollector().collect()
    assert [(sample.labels, sample.value >= 0) for sample in age.samples] == [({"endpoint": "books"}, True)]
    assert given_up.samples == []
    for _ in range(2):
        handle_events(0)
    job = ProcrastinateJob.objects.get(task_name="payments.send_deliveries")
    assert app.tasks[job.task_name](**job.args) == {"delivered": 3}


def test_nothing_is_queued_where_nothing_is_configured(settings: Any) -> None:
    settings.PAYMENTS = {name: value for name, value in settings.PAYMENTS.items() if name != "WEBHOOKS"}
    with CaptureQueriesContext(connection) as queries:
        assert sending.due_endpoints() == []
    assert len(queries) == 0


def test_a_mistake_is_named_and_no_secret_is(settings: Any) -> None:
    good = {"URL": "https://books.example/hook", "SECRETS": secret("a")}
    address, key = {"URL": good["URL"]}, {"SECRETS": secret("a")}
    for given, said in (
        (good, ""),
        ({"URL": "http://127.0.0.1:9/x", "SECRETS": f"{secret('a')}, {secret('b')}"}, ""),
        ({**good, "URL": "http://books.example/"}, "['URL'] must begin with https://"),
        ({**good, "URL": "https://u:p@books.example/"}, "must not hold a user"),
        ({**good, "URL": "books.example"}, "must be an absolute"),
        (key, "['books'] needs 'URL'"),
        (address, "needs either 'SECRETS' or 'SECRETS_FILE'"),
        ({**good, "SECRETS_FILE": "/x"}, "needs either 'SECRETS' or 'SECRETS_FILE'"),
        ({**address, "SECRETS_FILE": "/nowhere"}, "/nowhere cannot be read"),
        ({**good, "SECRETS": "whsec_c2hvcnQ="}, "24 to 64 random bytes"),
        ({**good, "SECRETS": secret("a")[6:]}, "24 to 64 random bytes"),
        ({**good, "SECRETS": "whsec_%%"}, "not whsec_ with base64"),
        ({**address, "SECRETS": [secret("a")]}, "['SECRETS'] must be a text"),
        ({**good, "EVENTS": ["payment.lost"]}, "must be a list of some of payment.paid"),
        *(({**good, "EVENTS": wrong}, "must be a list of some of") for wrong in (7, "payment.paid", [[]])),
        ({**good, "URL": 7}, "['URL'] must be an absolute http(s) address"),
        ({**good, "EVENT": []}, "'EVENT'] is unknown"),
        ([secret("a")], "must be a dict"),
    ):
        settings.PAYMENTS = {**settings.PAYMENTS, "WEBHOOKS": {"books": given}}
        found = [str(message.msg) for message in check_payments(None)]
        assert [said in message for message in found] == [True] * bool(said), given
        assert not any(secret("a")[6:] in message for message in found)
