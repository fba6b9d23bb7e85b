"""A sender's event is applied once; nothing is stored of what is not genuine."""

import signal
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client, RequestFactory
from prometheus_client import REGISTRY

from idempotency.maintenance import reap
from idempotency.models import EventStatus, WebhookEvent
from idempotency.postgres.statements import broken_constraint
from idempotency.webhooks import GitHub, Verifier, apply_stored_events, replay, webhook
from tests.integration.idempotency.webhooks.hooks import (
    ATTEMPTS_MAX,
    HOOKS,
    PLAN,
    SECRET,
    applied,
    applied_days_ago,
    now,
    request_of,
    send,
    signed,
    step,
)
from tests.processes import on_its_own
from tests.threads import at_once


def status_of(event_id: str = "e1") -> str:
    return WebhookEvent.objects.get(event_id=event_id).status


def counted(sender: str, result: str) -> float:
    labels = {"sender": sender, "result": result}
    return REGISTRY.get_sample_value("idempotency_webhooks_total", labels) or 0.0


def test_it_is_stored_as_it_arrived_and_applied() -> None:
    answer = send("now", "e1", {"zen": "收据"}, **{"X-Extra": "more", "X-Other": "not stored"})
    assert (answer.status_code, answer.json()) == (200, {"status": "applied"})
    row = WebhookEvent.objects.get()
    assert (row.sender, row.event_id, row.status, row.attempts) == ("now", "e1", "applied", 1)
    assert bytes(row.body or b"").startswith(b'{"id": "e1", "zen": "\\u6536')
    assert row.headers.keys() == {"X-Hub-Signature-256", "X-GitHub-Delivery", "X-Extra", "Content-Type"}
    assert row.applied_at is not None
    assert (send("now").json(), applied()) == ({"status": "duplicate"}, ["e1"])
    looked = Client().get("/now")
    assert (looked.status_code, looked["Allow"]) == (405, "POST")


@pytest.mark.parametrize("to", ["now", "later"])
def test_copies_at_once_are_applied_once(to: str) -> None:
    answers = at_once(*[lambda: send(to)] * 8)
    assert {answer.status_code for answer in answers} == {200}
    results = Counter(answer.json()["status"] for answer in answers)
    assert results == {"duplicate": 7, "applied" if to == "now" else "stored": 1}
    if to == "later":
        at_once(*[apply_stored_events] * 4)
    assert (applied(), WebhookEvent.objects.get().status) == (["e1"], "applied")


def test_a_process_that_dies_between_store_and_apply_loses_nothing() -> None:
    with on_its_own(f"{HOOKS}; send_and_die('e1')") as child:
        assert child.wait(60) == -signal.SIGKILL
    assert (applied(), status_of()) == ([], "stored")
    assert send("now").json() == {"status": "applied"}
    assert (applied(), send("now").json()) == (["e1"], {"status": "duplicate"})


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"X-Hub-Signature-256": "sha256=" + "0" * 64}, 400, "signature_invalid"),
        ({"X-GitHub-Delivery": ""}, 400, "malformed"),
        ({"X-GitHub-Delivery": "x" * 256}, 400, "malformed"),
        ({"X-GitHub-Delivery": "a\tb"}, 400, "malformed"),
        ({"body": b"x" * 1001}, 413, "payload_too_large"),
    ],
)
def test_what_is_refused_leaves_a_count_and_no_row(change: dict[str, Any], status: int, code: str) -> None:
    before = counted("now", code)
    answer = send("now", **change)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer["Content-Type"] == "application/problem+json"
    assert answer._has_been_logged  # else Django writes a line for each
    assert (WebhookEvent.objects.count(), applied(), counted("now", code) - before) == (0, [], 1)


def test_a_body_is_read_to_its_end_and_not_beyond_its_bound() -> None:
    lengths = (b"1001", b"9" * 5000)  # of more digits than `int` reads
    sized = [([(b"content-length", length)], b"unread") for length in lengths]
    for headers, body in (*sized, ([], b"x" * 1001)):
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
        assert now(ASGIRequest(scope, BytesIO(body))).status_code == 413
    raw, _ = signed("e1")
    assert b'"malformed"' in now(request_of(**{"wsgi.input": BytesIO(raw[:-1])})).content
    for sent, status in ((raw, 200), (b"x" * 1001, 413)):
        chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
        assert now(request_of(**chunked, **{"wsgi.input": BytesIO(sent)})).status_code == status
    assert bytes(WebhookEvent.objects.get().body or b"") == raw


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[]", "TypeError"),
        (b'{"id": null}', "id=%s.<lambda> returned a NoneType, not 1 to 255 printable"),
        ({"number": 1}, "KeyError: 'order'"),
        ({"order": None, "number": 1}, "entity=%s.<lambda> returned a NoneType"),
        ({"order": "o1", "number": "1"}, "sequence=%s.<lambda> returned a str, not a whole number from 1"),
    ],
)
def test_a_genuine_one_that_cannot_be_read_is_logged_with_the_reason(
    body: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert send("ordered", "e1", body).json()["code"] == "malformed"
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "ordered is genuine, and has no readable id, entity or sequence" in line
    assert reason.replace("%s", step.__module__) in line
    assert not WebhookEvent.objects.exists()


def test_inside_a_transaction_nothing_is_acknowledged() -> None:
    send("later")
    number = WebhookEvent.objects.get().pk
    calls: list[Callable[[], Any]] = [
        lambda: now(request_of("e2")),
        apply_stored_events,
        lambda: replay(number, operator="ann", note="why not"),
    ]
    for call in calls:
        with transaction.atomic(), pytest.raises(RuntimeError, match="transaction is open"):
            call()
        transaction.set_autocommit(False)
        with pytest.raises(RuntimeError, match="set_autocommit"):
            call()
        transaction.rollback()
        transaction.set_autocommit(True)
    assert list(WebhookEvent.objects.values_list("event_id", "status", "attempts")) == [("e1", "stored", 0)]


class Later:
    def __await__(self) -> Any:
        yield


def sql(statement: str) -> Callable[[], Any]:
    return lambda: connection.cursor().execute(statement)


TO_NO_GROUP = "INSERT INTO auth_group_permissions (group_id, permission_id) VALUES (-1, -1)"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RuntimeError("no \x00 such thing"), "RuntimeError: no  such thing"),
        (sql(TO_NO_GROUP), "IntegrityError"),  # the commit finds it
        *((sql(end), f"{end} by hand would end the transaction") for end in ("COMMIT", "ROLLBACK")),
        *((result, "before its work is done") for result in (Later, lambda: (each for each in "a"))),
    ],
)
def test_a_failed_one_is_undone_and_the_senders_copy_applies_it(fault: Any, words: str) -> None:
    PLAN["e1"] = fault
    answer = send("now")
    assert (answer.status_code, answer.json()["code"]) == (500, "webhook_failed")
    row = WebhookEvent.objects.get()
    assert (row.status, row.attempts, applied()) == ("failed", 1, [])
    assert words in row.error
    PLAN["e1"] = lambda: transaction.on_commit(lambda: 1 / 0)
    assert send("now").json() == {"status": "applied"}  # committed, whatever waited for it
    assert applied() == ["e1"]


def test_after_so_many_failures_it_is_quarantined_and_acknowledged() -> None:
    PLAN["e1"] = RuntimeError("never")
    answers = [send("now").status_code for _ in range(ATTEMPTS_MAX + 2)]
    assert answers == [500] * (ATTEMPTS_MAX - 1) + [200] * 3
    row = WebhookEvent.objects.get()
    assert (row.status, row.attempts) == ("quarantined", ATTEMPTS_MAX)
    PLAN.clear()
    assert apply_stored_events() == {}
    assert send("now").json() == {"status": "quarantined"}
    assert applied() == []


def test_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def go_away() -> None:
        monkeypatch.setitem(connection.settings_dict, "HOST", "/nowhere")
        connection.connection.close()

    PLAN["e1"] = go_away
    answer = send("now")
    monkeypatch.undo()
    PLAN.clear()
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert (status_of(), WebhookEvent.objects.get().attempts) == ("stored", 0)
    assert (apply_stored_events(), applied()) == ({"applied": 1}, ["e1"])  # what is stored is not lost


def raising(*_: Any) -> Any:
    raise KeyError("GITHUB_SECRET")


class Careless(GitHub):
    check = raising


@pytest.mark.parametrize(
    ("verify", "status", "words"),
    [
        (GitHub(lambda: ""), 503, "it has no secret"),
        (GitHub(raising), 503, "test_intake.raising, which returns its secret, raised KeyError"),
        (Careless(SECRET), 400, "test_intake.Careless.check raised KeyError: 'GITHUB_SECRET'. Raise NotGenuine"),
    ],
)
def test_a_fault_of_the_projects_own_verification_is_named(
    verify: Verifier, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    view = webhook("careless", verify=verify)(lambda event: None)
    answer = view(RequestFactory().post("/", b"{}", content_type="application/json"))
    assert answer.status_code == status
    assert words in caplog.text
    assert not WebhookEvent.objects.exists()


async def coroutine(event: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"verify": SECRET}, TypeError, "needs a Verifier"),
        ({"entity": str}, TypeError, "together"),
        ({"entity": "order", "sequence": "number"}, TypeError, "entity= is a function of the event, not 'order'"),
        ({"entity": coroutine, "sequence": int}, TypeError, "entity= is a function of the event"),
        ({"id": coroutine}, TypeError, "id= is a header or a function of the event"),
        ({"id": 5}, TypeError, "id= is a header or a function of the event, not 5"),
        ({"headers": "X-Extra"}, TypeError, "headers= is a list of names, not 'X-Extra'"),
        ({"verify": Verifier(SECRET)}, TypeError, "Verifier names no id. Write id="),
        ({"sender": ""}, ValueError, "1 to 96"),
        ({"attempts_max": 0}, ValueError, "attempts_max must be a whole number from 1 .*, not 0"),
        ({"max_bytes": 1e6}, ValueError, "max_bytes must be a whole number from 1 .*, not 1000000.0"),
        ({"sender": "now"}, ValueError, "hooks.now too"),
        ({"handler": coroutine}, TypeError, "Write `def`"),
    ],
)
def test_a_wrong_use_is_refused_with_what_to_write(given: Any, error: type[Exception], words: str) -> None:
    options: dict[str, Any] = {"sender": "other", "verify": GitHub(SECRET), **given}
    handler = options.pop("handler", lambda event: None)
    with pytest.raises(error, match=words):
        webhook(options.pop("sender"), **options)(handler)


def test_one_declaration_is_for_one_function() -> None:
    declaration = webhook("declared once", verify=GitHub(SECRET))
    declaration(wait_not)
    with pytest.raises(ValueError, match="wait_not too"):
        declaration(lambda event: None)
    assert declaration.handler is wait_not


def wait_not(event: Any) -> None: ...


def test_no_writer_changes_an_applied_event() -> None:
    send("now")
    changes: dict[str, list[dict[str, Any]]] = {
        "webhook_event_request": [{"event_id": "e2"}, {"body": b"other"}],
        "webhook_event_step": [{"status": "stored", "applied_at": None}],
        "webhook_event_is_whole": [{"applied_at": None}],
    }
    for constraint, change in [(name, change) for name, each in changes.items() for change in each]:
        with pytest.raises(IntegrityError) as refused, transaction.atomic():
            WebhookEvent.objects.update(**change)
        assert broken_constraint(refused.value) == constraint


def test_reaping_removes_applied_requests_then_rows_and_nothing_that_waits() -> None:
    send("later", "waits")
    send("now", "done")
    applied_days_ago(2)
    assert reap() | {"events": 0, "event bodies": 1} == reap() | {"event bodies": 1}
    assert WebhookEvent.objects.get(event_id="done").body is None
    applied_days_ago(400)
    call_command("idempotency", "reap", verbosity=0)
    assert list(WebhookEvent.objects.values_list("event_id", flat=True)) == ["waits"]
    with pytest.raises(IntegrityError, match="not applied yet"), transaction.atomic():
        WebhookEvent.objects.all().delete()
    assert EventStatus(status_of("waits")) == EventStatus.STORED
