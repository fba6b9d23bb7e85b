"""Notifications as rows: held if early, quarantined if changed, processed again on demand."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from payments.attempts import closing
from payments.channels import configured
from payments.errors import OutcomeUnknown
from payments.models import Anomaly, Attempt, AuditEntry, JournalEntry, Notification, Observation, ProviderCall
from payments.operations import actions
from payments.operations.actions import Operator
from payments.providers.base import Notice, Trade, TradeStatus
from payments.settlement import anomalies
from payments.webhooks import intake as webhooks
from payments.webhooks.digest import digest_of
from shop.models import Product
from tests.integration.payments.conftest import OpenAttempt, fold, letter, order_of, paid, payment_of
from tests.integration.shop.provider import ScriptedProvider
from tests.threads import at_once

BY = ("--operator", "eve", "--note", "repaired")


def broken(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("a fault of ours")


def fits_nowhere(*args: Any, **kwargs: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 10::numeric(1, 0)")


def refused(*args: Any, **kwargs: Any) -> None:
    Product.objects.create(sku="broken", name="", price_minor=-1, stock=0)


def take_in(notification_id: str, *facts: Any) -> str:
    notice = Notice(notification_id=notification_id, event_type="test", facts=facts)
    received = Notification(
        channel="wechat",
        notification_id=notification_id,
        event_type="test",
        body=b"{}",
        digest=digest_of(notice),
    )
    return webhooks._take_in(received, notice)


NO_FACTS: list[dict[str, Any]] = [
    *({"amount_minor": amount} for amount in ("1990", 19.9, Decimal(1990), True, -1, 2**63)),
    *({"paid_minor": amount} for amount in (-1, 2**63)),
    *({"provider_txn_id": number} for number in ("4\x00", "pi_\ud800", "4" * 65)),
    {"out_refund_no": "r" * 65},
    {"out_trade_no": "n\ud800"},
    {"merchant": "1" * 65},
    {"currency": "YUAN"},
    {"occurred_at": datetime(2026, 1, 1)},  # noqa: DTZ001  which zone's is not said
]


@pytest.mark.parametrize("stated", NO_FACTS, ids=str)
def test_what_is_no_fact_is_stored_for_a_person_and_not_settled(
    attempt: Attempt, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, stated: dict[str, Any]
) -> None:
    """Whether a plug-in reads it from a notification or from an answer."""
    fact = replace(paid(attempt), **stated)
    for _ in range(2):
        assert take_in("n", fact) in {"anomaly", "duplicate"}
    row, anomaly = Notification.objects.get(), Anomaly.objects.get()
    assert (row.verdict, row.attempts, anomaly.kind) == ("anomaly", 1, "notification_failed")
    answer = Trade(status=TradeStatus.PAID, facts=(fact,))
    monkeypatch.setattr(provider, "query", lambda **_: answer)
    with pytest.raises(OutcomeUnknown, match=next(iter(stated))):
        closing.query_attempt(attempt.pk)
    assert ProviderCall.objects.latest("id").failed
    assert (Observation.objects.count(), payment_of(attempt).status) == (0, "pending")


def test_a_known_id_with_other_content_goes_into_quarantine_once(open_attempt: OpenAttempt) -> None:
    attempt, other = open_attempt(), open_attempt()
    first = letter(attempt, notification_id="same").send()
    for _ in range(2):
        answer = letter(other, notification_id="same").send()
        assert (answer.status_code, answer.content) == (first.status_code, first.content)
    kept, aside = Notification.objects.order_by("id")
    assert (kept.verdict, aside.verdict) == ("applied", "quarantined")
    assert aside.notification_id == f"{kept.notification_id}#{aside.digest[:24]}"
    assert aside.out_trade_no == other.out_trade_no
    assert (payment_of(other).status, order_of(other).status) == ("pending", "pending")
    assert Anomaly.objects.get().kind == "content_changed"
    # a person has looked at it and found that it is right
    assert webhooks.replay(aside.pk) == "applied"
    assert order_of(other).status == "paid"


@pytest.mark.parametrize(("applied", "verdict"), [(True, "applied"), (False, "error")])
def test_a_copy_of_what_an_earlier_version_kept_is_a_copy(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch, applied: bool, verdict: str
) -> None:
    """Versions may digest other things; today's code then reads the stored bytes too."""
    attempt = open_attempt()
    with monkeypatch.context() as patch:
        if not applied:
            patch.setattr(webhooks, "settle_on", broken)
        letter(attempt, notification_id="n").send()
    assert Notification.objects.get().verdict == verdict
    Notification.objects.update(digest="0" * 64)
    with CaptureQueriesContext(connection) as asked:
        assert letter(attempt, notification_id="n").send().status_code in {200, 204}
    assert len(asked) == 2 or not applied  # to find it, and to read what was kept
    row = Notification.objects.get()
    assert (row.verdict, row.attempts) == ("applied", 1 if applied else 2)
    assert payment_of(attempt).paid_minor == 1990
    assert not Anomaly.objects.filter(resolved_at=None).exists()


@pytest.mark.parametrize("readable", [True, False], ids=["other content", "keys are gone"])
def test_what_an_earlier_version_kept_of_other_content(open_attempt: OpenAttempt, readable: bool) -> None:
    attempt, other = open_attempt(), open_attempt()
    letter(attempt, notification_id="n").send()
    Notification.objects.update(digest="0" * 64, **({} if readable else {"headers": {}}))
    assert letter(other if readable else attempt, notification_id="n").send().status_code == 204
    assert sorted(Notification.objects.values_list("verdict", flat=True)) == ["applied", "quarantined"]
    assert (Anomaly.objects.get().kind, payment_of(other).paid_minor) == ("content_changed", 0)


def resolve_all() -> None:
    for anomaly in Anomaly.objects.all():
        anomalies.resolve(anomaly.pk, resolution="seen")


def is_open() -> bool:
    return Anomaly.objects.get().resolved_at is None


def test_only_other_content_that_is_new_is_open_work_again(open_attempt: OpenAttempt) -> None:
    first, second, third = (letter(open_attempt(), notification_id="same") for _ in range(3))
    first.send()
    second.send()
    resolve_all()
    for copy in (second, first):
        copy.send()
        assert not is_open()
    third.send()
    assert is_open()
    latest = Notification.objects.order_by("id").last()
    assert latest is not None
    assert Anomaly.objects.get().detail["sha256"] == latest.digest
    resolve_all()
    for copy in (second, third):
        copy.send()
        assert not is_open()
    assert Notification.objects.count() == 3


def test_only_another_failure_is_open_again(open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    note = letter(open_attempt(), notification_id="n")
    for fault, status in ((broken, 500), (refused, 500), (fits_nowhere, 204)):
        monkeypatch.setattr(webhooks, "settle_on", fault)
        assert note.send().status_code == status
        assert is_open(), fault
        resolve_all()
        assert note.send().status_code == status
        assert not is_open(), fault
    assert Anomaly.objects.get().detail["error"] == "DataError: numeric field overflow"


@pytest.mark.parametrize(("fault", "status"), [(broken, 500), (fits_nowhere, 204)])
def test_one_that_fails_beside_an_applied_duplicate_alarms_nobody(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None], status: int
) -> None:
    note = letter(open_attempt(), notification_id="n")
    with monkeypatch.context() as patch:

        def fail_after_a_duplicate(*args: Any, **kwargs: Any) -> None:
            patch.undo()
            (duplicate,) = at_once(note.send)
            assert duplicate.status_code == 204
            fault()

        patch.setattr(webhooks, "settle_on", fail_after_a_duplicate)
        assert note.send().status_code == status
    assert note.send().status_code == 204
    assert Notification.objects.get().verdict == "applied"
    assert not Anomaly.objects.exists()


@pytest.mark.parametrize("fault", [broken, fits_nowhere])
def test_a_quarantined_one_that_fails_says_why_and_stays_there(
    open_attempt: OpenAttempt, admin_user: User, monkeypatch: pytest.MonkeyPatch, caplog: Any, fault: Any
) -> None:
    attempt, other = open_attempt(), open_attempt()
    for one in (attempt, other):
        letter(one, notification_id="same").send()
    aside = Notification.objects.get(verdict="quarantined")
    before = aside.attempts
    with monkeypatch.context() as patch:
        patch.setattr(webhooks, "settle_on", fault)
        result = actions.process_again(aside, by=Operator(user_id=admin_user.pk, reason="it is right"))
    aside.refresh_from_db()
    assert (aside.verdict, aside.attempts, aside.detail != "") == ("quarantined", before + 1, True)
    assert result.sentences == [f"It failed, and nothing of it is applied: {aside.detail}"]
    filed = Anomaly.objects.get(kind="notification_failed")
    assert (filed.reference, aside.detail.startswith(filed.detail["error"])) == (aside.notification_id, True)
    assert "could not be applied again" in caplog.text
    assert webhooks.replay(aside.pk) == "applied"
    assert not Anomaly.objects.filter(kind="notification_failed", resolved_at=None).exists()


def test_an_applied_one_that_fails_now_says_why_and_stays_applied(
    open_attempt: OpenAttempt, admin_user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter(open_attempt()).send()
    row = Notification.objects.get()
    monkeypatch.setattr(webhooks, "settle_on", broken)
    result = actions.process_again(row, by=Operator(user_id=admin_user.pk, reason="to be sure"))
    assert result.sentences == ["It failed, and nothing of it is applied: RuntimeError: a fault of ours"]
    row.refresh_from_db()
    assert (row.verdict, row.detail, Anomaly.objects.count()) == ("applied", "", 0)


@pytest.mark.usefixtures("eve")
def test_what_fits_in_no_column_is_processed_again_on_demand(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    attempt = open_attempt()
    with monkeypatch.context() as patch:
        patch.setattr(webhooks, "settle_on", fits_nowhere)
        assert letter(attempt, notification_id="n").send().status_code in {200, 204}
        row = Notification.objects.get()
        # the second is asked for by nobody: the provider has our acknowledgement
        for fault in (fits_nowhere, broken):
            patch.setattr(webhooks, "settle_on", fault)
            with pytest.raises(CommandError, match="1 could not be processed"):
                call_command("notifications", "replay", "--verdict", "anomaly", *BY)
            assert Anomaly.objects.get().detail["acknowledged"] == "yes"
    row.refresh_from_db()
    assert (row.verdict, row.attempts, row.detail) == ("anomaly", 3, "RuntimeError: a fault of ours")
    with pytest.raises(CommandError, match="There is no notification 'n-2'"):
        call_command("notifications", "replay", "n-2", *BY)
    call_command("notifications", "replay", "n", *BY)
    assert "applied: 1" in capsys.readouterr().out
    row.refresh_from_db()
    assert (row.verdict, row.attempts, row.detail) == ("applied", 4, "")
    assert (Anomaly.objects.get().resolution, payment_of(attempt).paid_minor) == ("processed later", 1990)


@pytest.mark.parametrize("verdict", ["anomaly", "quarantined"])
def test_what_was_kept_for_a_person_may_be_known_by_then(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    attempt = open_attempt()
    with monkeypatch.context() as patch:
        if verdict == "anomaly":
            patch.setattr(webhooks, "settle_on", fits_nowhere)
        else:
            letter(open_attempt(), notification_id="n").send()
        assert letter(attempt, notification_id="n").send().status_code == 204
    fold(paid(attempt), source="query")
    kept = Notification.objects.get(verdict=verdict)
    assert webhooks.replay(kept.pk) == "duplicate"
    kept.refresh_from_db()
    assert (kept.verdict, kept.detail) == ("duplicate", "")
    assert is_open() is (verdict == "quarantined")  # other content under a known id stays for a person


@pytest.mark.usefixtures("zoned")
def test_replaying_what_was_applied_moves_nothing(
    open_attempt: OpenAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = open_attempt()
    letter(attempt).send()
    before = vars(payment_of(attempt)) | {"_state": None}
    provider = configured.current()["wechat"]
    read, arrivals = provider.read_notification, list[datetime]()
    monkeypatch.setattr(
        provider, "read_notification", lambda **given: arrivals.append(given["now"]) or read(**given)
    )
    assert webhooks.replay(Notification.objects.get().pk) == "duplicate"
    assert [arrived.tzinfo for arrived in arrivals] == [UTC]
    assert vars(payment_of(attempt)) | {"_state": None} == before
    assert (Observation.objects.count(), JournalEntry.objects.count()) == (1, 1)
    row = Notification.objects.get()
    assert (row.verdict, row.attempts) == ("applied", 2)


@pytest.fixture
def eve(transactional_db: None) -> User:
    return User.objects.create_user("eve")


@pytest.mark.usefixtures("eve")
def test_the_command_replays_by_verdict_and_says_who_and_why(open_attempt: OpenAttempt, capsys: Any) -> None:
    for _ in range(3):
        letter(open_attempt()).send()
    Notification.objects.update(verdict="error", processed_at=None)
    call_command("notifications", "replay", "--verdict", "held", *BY)
    assert capsys.readouterr().out == "There is no notification of this verdict.\n"
    call_command("notifications", "replay", "--verdict", "error", *BY)
    printed = capsys.readouterr().out
    assert ("3 of 3" in printed, "duplicate: 3" in printed) == (True, True)
    assert not Notification.objects.filter(verdict="error").exists()
    for row in Notification.objects.all():
        lines = AuditEntry.objects.filter(subject=f"notification:{row.pk}", operator="eve").order_by("pk")
        assert [line.message for line in lines] == [
            "Processes it again. Reason: repaired. Result: begun.",
            "Processed again. Reason: repaired. Result: Processed again: everything in it was known; nothing"
            " changed.",
        ]


def test_the_command_changes_nothing_without_a_name_and_a_reason(open_attempt: OpenAttempt, eve: User) -> None:
    User.objects.create_user("gone", is_active=False)
    letter(open_attempt()).send()
    for given, words in (
        (("--operator", "eve"), "required: --note"),
        (("--note", "repaired"), "required: --operator"),
        (("--operator", "eve", "--note", " "), "--note says nothing"),
        (("--operator", "adam", "--note", "repaired"), "There is no active user 'adam'"),
        (("--operator", "gone", "--note", "repaired"), "There is no active user 'gone'"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("notifications", "replay", "--verdict", "applied", *given)
    assert (Notification.objects.get().attempts, AuditEntry.objects.count()) == (1, 0)


@pytest.mark.usefixtures("eve")
def test_the_command_goes_on_after_those_that_it_cannot_process(open_attempt: OpenAttempt, capsys: Any) -> None:
    for _ in range(3):
        letter(open_attempt()).send()
    Notification.objects.update(verdict="error", processed_at=None)
    first, second, _ = Notification.objects.order_by("pk")
    Notification.objects.filter(pk=first.pk).update(headers={})
    Notification.objects.filter(pk=second.pk).update(channel="cash")
    with pytest.raises(CommandError, match="2 could not be processed"):
        call_command("notifications", "replay", "--verdict", "error", *BY)
    verdicts = Notification.objects.order_by("id").values_list("verdict", flat=True)
    assert list(verdicts) == ["error", "error", "duplicate"]
    said = capsys.readouterr().err
    for why in ("Our keys do not verify it any more", "cash is not configured here"):
        assert why in said


@pytest.mark.parametrize(
    "arguments",
    [
        "notifications replay --verdict applied --limit -1",
        "reconcile --limit -5",
        "idempotency complete --idle-seconds nan",
    ],
)
def test_an_argument_out_of_range_is_refused_in_a_sentence(arguments: str) -> None:
    with pytest.raises(CommandError, match="must be"):
        call_command(*arguments.split())
