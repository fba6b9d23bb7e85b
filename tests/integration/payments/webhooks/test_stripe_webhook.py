"""docs/contract.md, 3, `POST /webhooks/stripe`: what is accepted, what is refused, and what each answer leaves behind."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test import Client

from payments.channels import configured
from payments.models import Anomaly, Attempt, Notification, Observation
from payments.refunds import steps as refunds
from payments.sandbox import state
from payments.sandbox.stripe import documents as stripe_documents
from payments.webhooks import intake as webhooks
from tests.integration.payments.conftest import fold, order_of, paid, payment_of
from tests.payments_settings import changed
from tests.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_network")]

OpenAttempt = Callable[..., Attempt]
URL = "/webhooks/stripe"


def told(attempt: Attempt, event: str = "paid", **changed: Any) -> dict[str, Any]:
    """What the sandbox's outbox keeps for one notification."""
    moment = attempt.created_at.timestamp()
    trade = {
        "out_trade_no": attempt.out_trade_no,
        "channel": "stripe",
        "transaction_id": f"pi_{attempt.out_trade_no[-20:]}",
        "amount_minor": attempt.amount_minor,
        "charged_minor": 0 if event == "closed" else attempt.amount_minor,
        "refunded_minor": 0,
        "description": "Mug",
        "state": "CLOSED" if event == "closed" else "SUCCESS",
        "paid_at": moment,
        "created_at": moment,
        **changed,
    }
    return {
        "id": f"{event}-{attempt.out_trade_no}",
        "event": event,
        "trade": trade,
        "refund": None,
        "created_at": moment,
    }


def refund_told(attempt: Attempt, amount_minor: int) -> dict[str, Any]:
    number = f"{amount_minor:032d}"
    made = {"refund_id": f"re_{number}", "amount_minor": amount_minor, "created_at": time.time()}
    numbers = {"out_trade_no": attempt.out_trade_no, "out_refund_no": number}
    with state.store().write() as store:
        kept = json.dumps({"metadata": numbers})
        store.execute("INSERT OR REPLACE INTO stripe_objects VALUES (?, ?)", [made["refund_id"], kept])
    return {**told(attempt), "id": f"refunded-{amount_minor}", "event": "refunded", "refund": made}


def send(
    notice: tuple[dict[str, str], bytes] | dict[str, Any], *, body: bytes | None = None, **headers: str
) -> Any:
    """Deliver a copy, signed now unless it is given ready."""
    given, genuine = stripe_documents.notification(notice) if isinstance(notice, dict) else notice
    given = {**given, **{name.replace("_", "-"): value for name, value in headers.items()}}
    content_type = given.pop("Content-Type")
    return Client(raise_request_exception=False).generic(
        "POST", URL, genuine if body is None else body, content_type=content_type, headers=given
    )


def signed(body: bytes, *, skew_seconds: int = 0) -> tuple[dict[str, str], bytes]:
    secret = state.keys().settings["STRIPE_WEBHOOK_SECRET"]
    header = stripe_documents.signature(body, secret=secret, timestamp=int(time.time()) + skew_seconds)
    return {"Content-Type": "application/json", "Stripe-Signature": header}, body


def test_a_genuine_event_pays_the_order_and_its_copies_change_nothing(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    for _ in range(3):
        assert send(told(attempt)).status_code == 200
    payment, order = payment_of(attempt), order_of(attempt)
    assert (payment.status, payment.paid_minor, order.status) == ("succeeded", 1990, "paid")
    assert Observation.objects.count() == 1
    row = Notification.objects.get()
    assert (row.channel, row.verdict, row.out_trade_no) == ("stripe", "applied", attempt.out_trade_no)
    assert row.notification_id.startswith("evt_")


def test_money_of_another_account_is_acknowledged_and_pays_nothing(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    _, genuine = stripe_documents.notification(told(attempt))
    theirs = json.dumps({**json.loads(genuine), "id": "evt_theirs", "account": "acct_theirs"}).encode()
    for _ in range(2):
        assert send(signed(theirs)).status_code == 200
    assert (Anomaly.objects.get().kind, Notification.objects.get().verdict) == ("merchant_mismatch", "anomaly")
    attempt.refresh_from_db()
    assert (attempt.status, payment_of(attempt).status, order_of(attempt).status) == ("pending",) * 3
    assert send(told(attempt)).status_code == 200
    assert (payment_of(attempt).status, order_of(attempt).status) == ("succeeded", "paid")


def test_refunds_before_and_after_the_payment_add_up(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    for notice in (
        refund_told(attempt, 990),
        told(attempt),
        refund_told(attempt, 1000),
        refund_told(attempt, 990),
    ):
        assert send(notice).status_code == 200
    payment = payment_of(attempt)
    assert (payment.status, payment.paid_minor, payment.refunded_minor) == ("refunded", 1990, 1990)


@pytest.mark.parametrize("kind", ["refund.failed", "refund.updated"])
def test_a_refund_that_comes_back_after_it_succeeded_waits_for_a_person(
    open_attempt: OpenAttempt, kind: str
) -> None:
    attempt = open_attempt("stripe")
    send(told(attempt))
    notice = refund_told(attempt, 990)
    event = json.loads(stripe_documents.notification(notice)[1])
    event["data"]["object"] |= {"status": "failed", "failure_reason": "expired_or_canceled_card"}
    number = event["data"]["object"]["metadata"]["out_refund_no"]
    failed = signed(json.dumps(event | {"id": "evt_failed", "type": kind}).encode())
    with transaction.atomic():
        refunds.request_refund(
            payment_id=attempt.payment_id, amount_minor=990, reason="", refund_id=UUID(hex=number)
        )
    assert send(failed).status_code == 200
    assert not Anomaly.objects.exists()  # it is open: our own question finds out, and frees what is reserved
    send(notice)
    again = signed(json.dumps(event | {"id": "evt_again", "type": kind}).encode())
    for _ in range(2):
        assert send(again).status_code == 200
    anomaly = Anomaly.objects.get(resolved_at__isnull=True)
    assert (anomaly.kind, anomaly.reference) == ("refund_failed", number)
    assert "expired_or_canceled_card" in anomaly.detail["message"]
    assert Notification.objects.get(notification_id="evt_again").verdict == "anomaly"
    assert payment_of(attempt).refunded_minor == 990


def test_replaying_what_waits_for_its_payment_leaves_it_waiting(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    assert send(refund_told(attempt, 990)).status_code == 200
    row = Notification.objects.get()
    for _ in range(2):
        assert webhooks.replay(row.pk) == "duplicate"
        row.refresh_from_db()
        assert row.verdict == "held"
    assert send(told(attempt)).status_code == 200
    for _ in range(2):
        row.refresh_from_db()
        assert (row.verdict, payment_of(attempt).refunded_minor) == ("applied", 990)
        assert row.detail == "it came before its payment, and was applied after it"
        assert webhooks.replay(row.pk) == "duplicate"


def test_a_payment_beside_a_replay_releases_what_waited(open_attempt: OpenAttempt) -> None:
    for amount_minor in range(990, 995):
        attempt = open_attempt("stripe")
        assert send(refund_told(attempt, amount_minor)).status_code == 200
        row = Notification.objects.get(out_trade_no=attempt.out_trade_no)
        fact = paid(attempt, provider_txn_id=f"pi_{attempt.out_trade_no[-20:]}")
        at_once(partial(webhooks.replay, row.pk), partial(fold, fact, source="query"))
        row.refresh_from_db()
        assert (row.verdict, payment_of(attempt).refunded_minor) == ("applied", amount_minor)


def test_a_canceled_intent_ends_the_attempt(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    assert send(told(attempt, "closed")).status_code == 200
    attempt.refresh_from_db()
    assert (attempt.status, payment_of(attempt).paid_minor) == ("closed", 0)


def nothing_is_left() -> bool:
    return (Notification.objects.count(), Observation.objects.count(), Anomaly.objects.count()) == (0, 0, 0)


@pytest.mark.parametrize("skew_seconds", [-100_000, -301, 301, 100_000])
def test_stale_or_of_the_future_is_400(open_attempt: OpenAttempt, skew_seconds: int) -> None:
    _, body = stripe_documents.notification(told(open_attempt("stripe")))
    assert send(signed(body, skew_seconds=skew_seconds)).status_code == 400
    assert nothing_is_left()


@pytest.mark.parametrize("header", ["", "t=1,v1=00", "nonsense"])
def test_a_signature_that_is_none_is_400(open_attempt: OpenAttempt, header: str) -> None:
    assert send(told(open_attempt("stripe")), Stripe_Signature=header).status_code == 400
    assert nothing_is_left()


def test_a_changed_body_is_400(open_attempt: OpenAttempt) -> None:
    headers, body = stripe_documents.notification(told(open_attempt("stripe")))
    assert send((headers, body.replace(b"1990", b"1991"))).status_code == 400
    assert nothing_is_left()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b"\xff", b'{"object": "event", "id": 1}'])
def test_signed_but_not_readable_is_400(channels: None, body: bytes) -> None:
    assert send(signed(body)).status_code == 400
    assert nothing_is_left()


@pytest.mark.parametrize("missing", ["object", "livemode", "created"])
def test_a_signed_event_need_not_tell_all(open_attempt: OpenAttempt, missing: str) -> None:
    attempt = open_attempt("stripe")
    _, body = stripe_documents.notification(told(attempt))
    less = {name: value for name, value in json.loads(body).items() if name != missing}
    assert send(signed(json.dumps(less).encode())).status_code == 200
    assert payment_of(attempt).status == "succeeded"


def event(**changed: Any) -> bytes:
    """An intent that succeeded, with members of the event or of the intent changed."""
    intent = {
        "id": "pi_1",
        "metadata": {"out_trade_no": "n" * 32},
        "amount_received": 1990,
        "currency": "cny",
    }
    outside = {
        "object": "event",
        "id": "evt_1",
        "type": "payment_intent.succeeded",
        "created": 1_790_000_000,
        "livemode": False,
    }
    known = {name: value for name, value in changed.items() if name in outside}
    return json.dumps({**outside, **known, "data": {"object": {**intent, **changed}}}).encode()


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "x" * 129},
        {"id": "x\x00"},
        {"id": "x\ud800"},
        {"type": "t" * 65},
        {"created": 10**12},
    ],
)
def test_signed_but_of_no_shape_is_400(channels: None, changed: dict[str, Any]) -> None:
    assert send(signed(event(**changed))).status_code == 400
    assert nothing_is_left()


def test_signed_and_nested_too_deeply_is_400(channels: None) -> None:
    assert send(signed(b"[" * 50_000)).status_code == 400


@pytest.mark.parametrize(
    "changed",
    [
        {"amount_received": 10**20},
        {"amount_received": 10**4000},
        {"currency": "yuan"},
        {"intent": "pi_\x00"},
        {"intent": "pi_\ud800"},
        {"intent": "p" * 65},
    ],
    ids=["amount", "long amount", "currency", "NUL", "surrogate", "long number"],
)
def test_what_fits_nowhere_is_acknowledged_and_kept_for_a_person(
    open_attempt: OpenAttempt, changed: dict[str, Any]
) -> None:
    body = json.loads(event(metadata={"out_trade_no": open_attempt("stripe").out_trade_no}))
    body["data"]["object"] |= {"id": changed.pop("intent", "pi_1"), **changed}
    for _ in range(3):
        assert send(signed(json.dumps(body).encode())).status_code == 200
    row, anomaly = Notification.objects.get(), Anomaly.objects.get(resolved_at__isnull=True)
    assert (row.verdict, row.attempts, anomaly.kind) == ("anomaly", 1, "notification_failed")
    assert anomaly.detail == {"error": row.detail.partition("\n")[0], "acknowledged": "yes"}
    assert Observation.objects.count() == 0


def test_the_same_id_with_other_content_is_put_aside(open_attempt: OpenAttempt) -> None:
    one, other = open_attempt("stripe"), open_attempt("stripe")
    assert send(told(one)).status_code == 200
    known = json.loads(stripe_documents.notification(told(one))[1])["id"]
    changed = json.loads(stripe_documents.notification(told(other))[1]) | {"id": known}
    for _ in range(2):
        assert send(signed(json.dumps(changed).encode())).status_code == 200
    kept, aside = Notification.objects.order_by("id")
    assert (kept.verdict, aside.verdict) == ("applied", "quarantined")
    assert aside.notification_id == f"{known}#{aside.digest[:24]}"
    assert (Anomaly.objects.get().kind, payment_of(other).paid_minor) == ("content_changed", 0)


def test_the_same_id_about_another_refund_is_put_aside(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    send(told(attempt))
    for amount_minor in (500, 600):
        notice = refund_told(attempt, amount_minor)
        number = UUID(hex=notice["refund"]["refund_id"][3:])
        with transaction.atomic():
            refunds.request_refund(
                payment_id=attempt.payment_id, amount_minor=amount_minor, reason="", refund_id=number
            )
        send(notice)
        failed = json.loads(stripe_documents.notification(notice)[1])
        failed["data"]["object"] |= {"status": "failed", "failure_reason": "lost_or_stolen_card"}
        body = json.dumps(failed | {"id": "evt_failed", "type": "refund.failed"}).encode()
        assert send(signed(body)).status_code == 200
    about = Notification.objects.filter(event_type="refund.failed").order_by("id")
    assert [row.verdict for row in about] == ["anomaly", "quarantined"]
    assert set(Anomaly.objects.values_list("kind", flat=True)) == {"refund_failed", "content_changed"}
    assert webhooks.replay(about[1].pk) == "anomaly", "a person has found that it is right"
    assert Anomaly.objects.filter(kind="refund_failed").count() == 2


@pytest.mark.parametrize("number", ["n" * 65, "n\x00", "n\ud800", 7, ["n"], {"n": 1}])
def test_an_intent_of_another_system_with_a_number_like_ours_is_not_ours(channels: None, number: Any) -> None:
    assert send(signed(event(metadata={"out_trade_no": number}))).status_code == 200
    assert Observation.objects.count() == 0


def test_only_post_and_only_so_much(channels: None) -> None:
    assert Client().get(URL).status_code == 405
    assert send(signed(b"x" * 70_000)).status_code == 400


def test_a_channel_that_is_not_configured_takes_nothing(settings: Any, channels: None) -> None:
    for provider in configured.current().values():
        provider._http.close()  # type: ignore[attr-defined]
    settings.PAYMENTS = changed(PROVIDERS={})
    configured.forget()
    assert send(signed(b"{}")).status_code == 400


def test_when_the_effect_fails_it_is_kept_and_the_next_copy_is_applied(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = open_attempt("stripe")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as broken:
        broken.setattr(webhooks, "settle_on", fail)
        answer = send(told(attempt))
    assert (answer.status_code, answer["Retry-After"]) == (500, "1")
    row = Notification.objects.get()
    assert (row.verdict, "stripe-signature" in {name.lower() for name in row.headers}) == ("error", True)
    assert send(told(attempt)).status_code == 200
    assert (Notification.objects.get().verdict, payment_of(attempt).paid_minor) == ("applied", 1990)


def test_without_a_database_it_is_asked_for_again(open_attempt: OpenAttempt) -> None:
    notice = told(open_attempt("stripe"))
    kept = connection.settings_dict["OPTIONS"]
    connection.close()
    connection.settings_dict["OPTIONS"] = {"host": "/nowhere"}
    try:
        answer = send(notice)
    finally:
        connection.close()
        connection.settings_dict["OPTIONS"] = kept
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert send(notice).status_code == 200


def test_another_amount_is_acknowledged_and_never_credited(open_attempt: OpenAttempt) -> None:
    attempt = open_attempt("stripe")
    assert send(told(attempt, charged_minor=2090)).status_code == 200
    assert (payment_of(attempt).paid_minor, Notification.objects.get().verdict) == (0, "anomaly")
    assert Anomaly.objects.get().kind == "amount_mismatch"
