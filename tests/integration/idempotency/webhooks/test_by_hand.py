"""Events that need a person or a timer: quarantine, replay, and the check."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.test import Client
from django.urls import include, path

from idempotency.locks.engine.session import lock_key
from idempotency.models import WebhookEvent
from idempotency.webhooks import (
    GitHub,
    NotReplayable,
    StandardWebhooks,
    apply_stored_events,
    applying,
    replay,
    webhook,
)
from tests.integration.idempotency.webhooks.hooks import ATTEMPTS_MAX, HOOKS, PLAN, applied, send, step
from tests.processes import on_its_own

LIST = "/admin/idempotency/webhookevent/"


def run(*words: str) -> str:
    printed = StringIO()
    call_command("idempotency", *words, stdout=printed)
    return printed.getvalue()


def quarantined(event_id: str = "e1") -> WebhookEvent:
    PLAN[event_id] = RuntimeError("<never>")
    for _ in range(ATTEMPTS_MAX):
        send("now", event_id)
    row = WebhookEvent.objects.get(event_id=event_id)
    assert row.status == "quarantined"
    return row


def all_are_due() -> None:
    WebhookEvent.objects.update(due_at=F("due_at") - timedelta(days=1))


@contextmanager
def _busy(entity: str) -> Iterator[None]:
    """Have another connection apply an event of `entity`, and this one wait for no lock."""
    with psycopg.connect(**connection.get_connection_params()) as other, connection.cursor() as cursor:
        other.execute("SELECT pg_advisory_lock(%s)", [lock_key(f"webhook ordered {entity}")])
        cursor.execute("SET lock_timeout = 20")
        try:
            yield
        finally:
            cursor.execute("RESET lock_timeout")


def _die_of(event_id: str) -> None:
    """Apply stored events in a process that this one ends."""
    with on_its_own(f"{HOOKS}; work_and_die({event_id!r})") as child:
        assert child.wait(60) == -signal.SIGKILL


@pytest.fixture
def operator(client: Client) -> Client:
    names = ["view_webhookevent", "replay_webhookevent"]
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    return client


class TestTheWorker:
    def test_it_applies_what_is_deferred_bounded_and_in_the_order_of_arrival(self) -> None:
        for number in range(5):
            assert send("later", f"e{number}").json() == {"status": "stored"}
        assert applied() == []
        assert apply_stored_events(limit=2) == {"applied": 2}
        assert apply_stored_events() == {"applied": 3}
        assert applied() == [f"e{number}" for number in range(5)]

    def test_a_failure_is_tried_again_later_and_at_last_quarantined(self) -> None:
        send("later")
        PLAN["e1"] = RuntimeError("never")
        assert apply_stored_events() == {"failed": 1}
        assert apply_stored_events() == {}  # not due yet
        for result in ["failed", "quarantined"]:
            all_are_due()
            assert apply_stored_events() == {result: 1}
        all_are_due()
        assert apply_stored_events() == {}
        assert send("later").json() == {"status": "duplicate"}
        assert applied() == []

    def test_an_event_that_ends_its_process_keeps_no_other_waiting_and_is_quarantined(self) -> None:
        for event_id in ("e1", "e2"):
            send("later", event_id)
        _die_of("e1")
        assert (apply_stored_events(), applied()) == ({"applied": 1}, ["e2"])
        for _ in range(ATTEMPTS_MAX - 1):
            all_are_due()
            _die_of("e1")
        all_are_due()
        assert (apply_stored_events(), apply_stored_events()) == ({"quarantined": 1}, {})
        row = WebhookEvent.objects.get(event_id="e1")
        assert row.status == "quarantined"
        assert f"None of {ATTEMPTS_MAX} attempts is left" in row.error
        replay(row.pk, operator="ann", note="mended")
        assert applied() == ["e2", "e1"]

    def test_the_command_does_the_same_and_fails_with_an_event(self) -> None:
        assert run("apply") == "nothing is due\n"
        send("later")
        assert run("apply") == "1 applied\n"
        PLAN["e2"] = RuntimeError("never")
        send("later", "e2")
        with pytest.raises(CommandError, match="1 could not be applied"):
            run("apply", "--limit", "9")


class TestReplay:
    def test_the_command_applies_it_once_and_says_by_whom(self) -> None:
        number = quarantined().pk
        with pytest.raises(CommandError, match="is quarantined"):
            run("replay", f"#{number}", "--note", "again", "--operator", "ann")
        PLAN.clear()
        assert run("replay", f"#{number}", "--note", "fixed", "--operator", "ann") == f"#{number} is applied\n"
        assert WebhookEvent.objects.get().note.endswith("operator ann: fixed")
        with pytest.raises(CommandError, match="is applied or missing"):
            run("replay", f"#{number}", "--note", "again", "--operator", "ann")
        with pytest.raises(ValueError, match="reason"):
            replay(number, operator="ann", note=" ")
        assert applied() == ["e1"]

    @pytest.mark.parametrize("atomic", [False, True])
    def test_the_admin_applies_it_and_logs_who_and_why(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch, atomic: bool
    ) -> None:
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
        row = f"{LIST}{quarantined().pk}"

        def press(note: str) -> str:
            return operator.post(f"{row}/replay/", {"note": note}, follow=True).content.decode()

        shown = operator.get(f"{row}/change/").content.decode()
        for words in ("RuntimeError: &lt;never&gt;", "X-GitHub-Delivery: e1", f"{row}/replay/"):
            assert words in shown
        assert "Its handler runs now, once" in operator.get(f"{row}/replay/").content.decode()
        assert "This field is required" in press("")
        assert "The event is quarantined." in press("once more")
        PLAN.clear()
        answer = press("repaired")
        assert "The event is applied." in answer
        assert f"{row}/replay/" not in answer
        assert "is applied or missing" in press("again")
        assert applied() == ["e1"]
        logged = LogEntry.objects.order_by("pk").values_list("user__username", "change_message")
        assert list(logged) == [("ann", "quarantined: once more"), ("ann", "applied: repaired")]

    def test_one_whose_entity_is_busy_is_tried_again_and_the_run_is_no_attempt(self, operator: Client) -> None:
        PLAN["o1-1"] = RuntimeError("not yet")
        step(1)
        all_are_due()
        number = WebhookEvent.objects.get().pk
        with _busy("o1"):
            assert apply_stored_events() == {"busy": 1}
            page = operator.post(f"{LIST}{number}/replay/", {"note": "why"}, follow=True).content.decode()
            with pytest.raises(CommandError, match="Try again"):
                run("replay", f"#{number}", "--note", "why")
        assert "Try again" in page
        assert list(WebhookEvent.objects.values_list("status", "attempts")) == [("failed", 1)]
        assert not LogEntry.objects.exists()

    def test_one_without_a_handler_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send("later")
        monkeypatch.delitem(applying.declared, "later")
        assert apply_stored_events() == {}
        with pytest.raises(NotReplayable):
            replay(WebhookEvent.objects.get().pk, operator="ann", note="why")

    def test_the_list_is_filtered_and_who_may_only_look_may_not_apply(self, operator: Client) -> None:
        number = quarantined("bad").pk
        send("later", "waits")
        step(2)
        queries = {"status=quarantined": {"bad"}, "sender=later": {"waits"}, "q=o1-2": {"o1-2"}}
        for query, found in (queries | {"": {"bad", "waits", "o1-2"}}).items():
            page = operator.get(f"{LIST}?{query}").content.decode()
            assert {name for name in ("bad", "waits", "o1-2") if f">{name}</a>" in page} == found
        User.objects.get().user_permissions.remove(Permission.objects.get(codename="replay_webhookevent"))
        assert "replay" not in operator.get(f"{LIST}{number}/change/").content.decode()
        assert operator.post(f"{LIST}{number}/replay/", {"note": "why"}).status_code == 403
        assert applied() == []


class TestTheCheck:
    def test_a_missing_or_unusable_secret_is_named_with_what_to_write(self, settings: Any) -> None:
        class Addresses:
            urlpatterns = [
                path("a", webhook("no-secret", verify=GitHub(lambda: ""))(lambda event: None)),
                path("b", webhook("bad-secret", verify=StandardWebhooks("whsec_?"))(lambda event: None)),
                path("", include("tests.integration.idempotency.webhooks.hooks")),
            ]

        settings.ROOT_URLCONF = Addresses
        found = [message for message in run_checks() if message.id == "idempotency.E017"]
        assert [message.msg.split(" answers")[0] for message in found] == [
            "@webhook('bad-secret')",
            "@webhook('no-secret')",
        ]
        assert "Write verify=GitHub(…)" in str(found[1].hint)

    def test_the_setting_that_keys_all_views_leaves_webhooks_out(self, settings: Any) -> None:
        settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "KEYED": "unsafe"}
        assert send("now").json() == {"status": "applied"}
