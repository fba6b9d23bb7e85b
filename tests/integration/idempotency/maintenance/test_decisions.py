"""An operator decides an unknown outcome in the admin or a terminal; the line stays."""

import base64
import io
import os
import re
import shlex
import sys
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError
from django.test import Client, override_settings
from django.urls import include, path

from idempotency import ledger
from idempotency.admin.log_display import timeline
from idempotency.maintenance.decisions import Decision, NotDecidable, abandon, resolve
from idempotency.models import LedgerAttempt, LedgerEntry, Outcome, State
from idempotency.protocol.recovery import NotAbandonable
from tests import pages
from tests.integration.idempotency import urls
from tests.integration.idempotency.conftest import Caller, Effects
from tests.integration.idempotency.urls import PLAN

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

urlpatterns = [*urls.urlpatterns, path("", include("shop.urls"))]


@pytest.fixture
def uncertain(caller: Caller) -> LedgerEntry:
    """A phased entry that was answered 202."""
    PLAN["answer"] = 202
    caller.post("/phased", body={})
    PLAN["answer"] = 201
    return LedgerEntry.objects.get()


def decision(entry: LedgerEntry, note: str = "the bank says so") -> Decision:
    return Decision(entry_id=entry.pk, fence=entry.fence, operator="operator eve", note=note)


def test_steps_that_nobody_here_knows_cannot_be_abandoned(uncertain: LedgerEntry) -> None:
    LedgerEntry.objects.update(handler="of another program", recovery_point="reserved")
    with pytest.raises(NotAbandonable, match="'of another program'"):
        abandon(decision(uncertain))
    resolve(decision(uncertain), status=204, body="")
    assert LedgerEntry.objects.get().state == State.FINISHED


@pytest.mark.parametrize(
    ("decide", "outcome"),
    [(abandon, Outcome.ABANDONED), (partial(resolve, status=204, body=""), Outcome.RESOLVED)],
    ids=["abandon", "resolve"],
)
def test_who_and_why_stay_in_the_history(uncertain: LedgerEntry, decide: Any, outcome: Outcome) -> None:
    decide(decision(uncertain, note="  asked the provider "))
    line = timeline(LedgerEntry.objects.get())[-2]
    assert line.what == f"{outcome} by an operator"
    assert (line.who, line.note) == ("operator eve", "asked the provider")
    with pytest.raises(IntegrityError, match="ledger_attempt_by_hand_has_a_note"):
        LedgerAttempt.objects.filter(outcome=outcome).update(note="")


def test_what_is_running_finished_atomic_or_changed_is_not_decidable(
    caller: Caller, uncertain: LedgerEntry
) -> None:
    caller.post(key="atomic")
    atomic = LedgerEntry.objects.get(key="atomic")
    found = ledger.find(scope=uncertain.scope, key=uncertain.key)
    assert found is not None
    run = ledger.take_over(found, owner="me", request_id="", lease_seconds=30)
    assert run is not None
    running = LedgerEntry.objects.get(pk=uncertain.pk)
    for entry in (atomic, uncertain, running):  # finished in one piece; seen before it changed; under a lease
        with pytest.raises(NotDecidable):
            abandon(decision(entry))
    with pytest.raises(NotDecidable):
        abandon(Decision(entry_id=0, fence=1, operator="x", note="y"))


@pytest.fixture
def operator(client: Client) -> Client:
    """Staff who may look at the ledger and decide."""
    eve = User.objects.create_user("eve", is_staff=True)
    eve.user_permissions.set(Permission.objects.filter(codename__in=["view_ledgerentry", "close_ledgerentry"]))
    client.force_login(eve)
    return client


def test_in_the_admin_it_is_shown_asked_and_done_once(
    operator: Client, caller: Caller, uncertain: LedgerEntry
) -> None:
    detail = f"/admin/idempotency/ledgerentry/{uncertain.pk}/change/"
    decide = f"/admin/idempotency/ledgerentry/{uncertain.pk}/decide/"
    assert decide in operator.get(detail).content.decode()
    asked = operator.get(decide).content.decode()
    assert "run 1 outcome unknown" in asked
    given = {"outcome": "resolved", "note": "", "status": "201", "body": "{", "fence": str(uncertain.fence)}
    assert "This is not JSON" in operator.post(decide, given | {"body": "[" * 100_000}).text
    refused = operator.post(decide, given).content.decode()
    assert "This is not JSON" in refused
    assert "This field is required" in refused
    done = operator.post(decide, given | {"note": "seen at the bank", "body": '{"id": 9}'}, follow=True)
    assert "The entry is resolved" in done.content.decode()
    assert "seen at the bank" in done.content.decode()
    assert decide not in done.content.decode()
    assert caller.post("/phased", body={}).json() == {"id": 9}
    line = LogEntry.objects.get()
    assert (line.user.get_username(), line.get_change_message()) == ("eve", "resolved: seen at the bank")
    assert "nothing to decide" in operator.get(decide, follow=True).content.decode()


def test_with_enabled_off_the_admin_needs_no_redis(
    operator: Client, uncertain: LedgerEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = f"/admin/idempotency/ledgerentry/{uncertain.pk}"
    given = {"outcome": "abandoned", "note": "gone", "status": "200", "body": "", "fence": str(uncertain.fence)}
    cache = {"default": {"BACKEND": "django_redis.cache.RedisCache"}}
    with override_settings(IDEMPOTENCY={"ENABLED": False}, CACHES=cache):
        for module in ("django_redis", "django_redis.cache"):
            monkeypatch.setitem(sys.modules, module, None)  # as if it was not installed
        assert "Calls are not logged" in operator.get(f"{page}/change/").content.decode()
        assert operator.get("/admin/idempotency/ledgerentry/locks/").status_code == 200
        assert "is abandoned" in operator.post(f"{page}/decide/", given, follow=True).content.decode()


def test_who_looked_before_it_changed_must_look_again_and_looking_is_not_deciding(
    operator: Client, uncertain: LedgerEntry
) -> None:
    page = f"/admin/idempotency/ledgerentry/{uncertain.pk}"
    given = {"outcome": "abandoned", "note": "gone", "status": "200", "body": "", "fence": "7"}
    assert "Look again" in operator.post(f"{page}/decide/", given, follow=True).content.decode()
    User.objects.get(username="eve").user_permissions.remove(Permission.objects.get(codename="close_ledgerentry"))
    assert f"{page}/decide/" not in operator.get(f"{page}/change/").content.decode()
    given["fence"] = str(uncertain.fence)
    assert operator.get(f"{page}/decide/").status_code == 403
    assert operator.post(f"{page}/decide/", given).status_code == 403
    assert LedgerEntry.objects.get().state == State.UNCERTAIN


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("idempotency", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("action", "status", "location"), [("resolve", 201, "/refunds/31"), ("abandon", 409, None)]
)
def test_from_a_terminal_as_the_page_says(
    caller: Caller,
    effects: Effects,
    uncertain: LedgerEntry,
    settings: Any,
    action: str,
    status: int,
    location: str | None,
) -> None:
    ended = f"{uncertain.attempts.get().ended_at:%Y-%m-%d %H:%M:%S} UTC  run 1 outcome unknown"
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Shanghai"  # the pages write UTC in any case
    settings.IDEMPOTENCY = {"BODY_KEYS": {"k": base64.b64encode(b"k" * 32).decode()}}
    shown = run("show", "k1")
    for words in (f"#{uncertain.pk}", "phased, uncertain, fence 1", ended):
        assert words in shown
    assert run("show", f"#{uncertain.pk}") == shown
    page = pages.text_of("docs/how-to/decide-an-entry.md")
    (line,) = re.findall(rf"^manage\.py idempotency ({action} .*)$", page, re.MULTILINE)
    command = shlex.split(line.replace("#7", f"#{uncertain.pk}"))
    assert "is closed" in run(*command, "--operator", "bo")
    assert "operator bo  " in run("show", "k1")
    with pytest.raises(CommandError, match="it is finished"):
        run(*command)
    for _ in range(2):
        answer = caller.post("/phased", body={})
        found = (answer.status_code, answer.get("Location"), answer["Idempotent-Replayed"])
        assert found == (status, location, "true")
    if action == "abandon":
        assert answer.json()["code"] == "operation_abandoned"
        assert answer["Content-Type"] == "application/problem+json"
    assert effects() == 1


def test_mistakes_are_named(uncertain: LedgerEntry) -> None:
    mistakes = {
        ("show", "nothing"): "no entry with the key",
        ("show", "\udcff"): "surrogates not allowed",
        ("abandon", "#0", "--note", "x"): "There is no entry",
        ("abandon", "abc", "--note", "x"): "no entry's number",
        **{
            ("resolve", str(uncertain.pk), "--note", "x", "--body", body): "JSON"
            for body in ("", "{", "nope", "NaN", "[" * 100_000)
        },
        **{
            ("resolve", str(uncertain.pk), "--note", "x", "--status", status): "invalid choice"
            for status in ("202", "500")
        },
        ("abandon", str(uncertain.pk), "--note", " "): "reason",
        ("resolve", str(uncertain.pk), "--note", "x", "--location", "/a\nb"): "without spaces",
        ("resolve", str(uncertain.pk), "--note", "x", "--location", "\n"): "without spaces",
        **{("reap", "--batch", batch): "must be a whole number from 1" for batch in ("0", "-1", "x", "9" * 20)},
    }
    for arguments, sentence in mistakes.items():
        with pytest.raises(CommandError, match=sentence):
            run(*arguments)
    assert LedgerEntry.objects.get().state == State.UNCERTAIN


def test_where_a_user_id_has_no_name_the_operator_must_be_named(
    uncertain: LedgerEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert run("show", "k1")
    with pytest.raises(CommandError, match="--operator"):
        run("abandon", f"#{uncertain.pk}", "--note", "x")
    assert "is closed" in run("abandon", f"#{uncertain.pk}", "--note", "x", "--operator", "bo")


def test_other_commands_print_what_they_did_on_a_terminal_over_their_progress(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = ("bodies", "tombstones", "messages", "log lines", "event bodies", "events", "deliveries")
    summary = ", ".join(f"0 {what}" for what in removed) + " removed\n"
    for batch in ("1000", "1000000000"):  # the usual and the largest
        assert run("reap", "--batch", batch) == summary
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    call_command("idempotency", "reap", stdout=terminal, stderr=terminal)
    first, *shown, last = terminal.getvalue().split("\r\x1b[K")
    assert (first, shown[0], shown[-1], last) == ("", "bodies: 0", "deliveries: 0", summary)
    assert run("complete") == "nothing is stalled\n"
    PLAN["about"] = ("order", "0190")
    for number in range(21):
        caller.post("/phased", body={}, key=f"key-{number}")
    assert run("show", "order:0190").count("  key key-") == 21
