"""Recovery points: a handler of steps that dies anywhere goes on where it ended."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models.functions import Now
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory, override_settings

from idempotency import ledger
from idempotency.call import KeyedCall
from idempotency.maintenance.completer import OWNER, RUNS_MAX, complete_stalled
from idempotency.models import LedgerAttempt, LedgerEntry, Outcome, State
from idempotency.protocol.recovery import NoOp, Phases, Progress, RecoveryPoint, Response
from idempotency.views import idempotent
from tests.integration.idempotency.conftest import Caller, Effects, end_the_lease
from tests.integration.idempotency.urls import STEPS, Killed, effect

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.integration.idempotency.urls"),
    pytest.mark.usefixtures("the_dead_drop_nothing"),
]
EVERYONE = override_settings(IDEMPOTENCY={"PRINCIPAL": "tests.integration.idempotency.urls.everyone"})


def post(caller: Caller, key: str = "k1", **headers: str) -> Any:
    return caller.post("/steps", key=key, body={"amount": 5}, **headers)


def die(caller: Caller, point: str, key: str = "k1") -> None:
    """Call, in a process that dies at the end of that step, before its result is stored."""
    STEPS["die_at"] = point
    with pytest.raises(Killed):
        post(caller, key)
    STEPS["die_at"] = ""


@pytest.mark.parametrize("point", ["started", "reserved", "noted"])
def test_killed_at_a_step_the_completer_goes_on_there(caller: Caller, effects: Effects, point: str) -> None:
    """A retry does so in test_phases_at_doors.py."""
    die(caller, point)
    assert post(caller).json()["code"] == "idempotency_in_progress"
    end_the_lease()
    # what never reached its first recovery point has done nothing, and is forgotten
    assert complete_stalled() == {"forgotten" if point == "started" else "finished": 1}
    answer = post(caller)
    assert (answer.status_code, answer.json()["receipt"]) == (201, "r-5")
    assert effects() == 2
    # an atomic step that was killed left nothing and ran again; so did the outside one, which is asked to bear it
    assert [call for call in STEPS["calls"] if call != point] == [
        call for call in ("started", "reserved", "charged", "noted") if call != point
    ]
    assert STEPS["calls"].count(point) == 2
    entry = LedgerEntry.objects.get()
    assert (entry.state, entry.handler, entry.recovery_point) == (State.FINISHED, "tests.steps", "noted")
    assert entry.recovery_data == {"amount": 5, "receipt": "r-5"}
    if point != "started":
        runs = list(LedgerAttempt.objects.order_by("fence").values_list("fence", "outcome", "owner"))
        assert [run[:2] for run in runs] == [(1, Outcome.LOST), (2, Outcome.FINISHED)]
        assert runs[1][2].startswith(OWNER)


def test_an_unknown_outcome_stays_open_and_the_completer_resolves_it(caller: Caller, effects: Effects) -> None:
    STEPS["outside"] = Response(202, {"state": "uncertain"})
    first = post(caller)
    assert (first.status_code, LedgerEntry.objects.get().state) == (202, State.UNCERTAIN)
    assert complete_stalled(idle_seconds=3600) == {}  # the client's own retry comes first
    assert complete_stalled(idle_seconds=0) == {"uncertain": 1}
    STEPS["outside"] = None
    assert complete_stalled(idle_seconds=0) == {"finished": 1}
    again = post(caller)
    # who heard 202 hears 202 again, with what is known now
    assert (again.status_code, again.json()) == (202, {"amount": 5, "receipt": "r-5"})
    assert again["Idempotent-Replayed"] == "true"
    assert effects() == 2


def test_an_outside_step_with_nothing_to_note_goes_on(caller: Caller, effects: Effects) -> None:
    STEPS["outside"] = NoOp()
    first, again = post(caller), post(caller)
    assert (first.status_code, first.json(), again.content) == (201, {"amount": 5}, first.content)
    assert (STEPS["calls"], effects()) == (["started", "reserved", "charged", "noted"], 2)


def test_a_refusing_step_is_undone_and_an_atomic_one_cannot_say_that_an_outcome_is_unknown(
    caller: Caller, effects: Effects
) -> None:
    for status, state in ((409, State.FINISHED), (500, State.RUNNING)):
        STEPS["inside"] = Response(status, {"code": "no"})
        assert post(caller, f"k{status}").status_code == status
        assert (effects(), LedgerEntry.objects.get(key=f"k{status}").state) == (0, state)
    STEPS["inside"] = Response(202, {})
    caller.client.raise_request_exception = True
    with pytest.raises(RuntimeError, match=r"atomic step 'started' of 'tests\.steps' answered 202"):
        post(caller)
    assert effects() == 0


def test_an_entry_that_its_completer_fails_again_and_again_is_left_to_a_person(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not counted are the retries of a caller, whatever it calls itself."""
    monkeypatch.undo()  # what fails drops its lease
    STEPS["outside"] = RuntimeError("the provider's library broke")
    assert post(caller, **{"X-Request-Id": "completer"}).status_code == 500
    add_runs(RUNS_MAX, Outcome.FAILED, by=LedgerAttempt.objects.get().owner)
    end_the_lease()
    assert complete_stalled() == {"failed": 1}
    assert LedgerAttempt.objects.filter(owner__startswith=OWNER).count() == 1
    LedgerAttempt.objects.filter(fence__gte=102).update(owner=f"{OWNER}host:1:1")
    with pytest.raises(CommandError, match="1 could not be completed"):
        call_command("idempotency", "complete", idle_seconds=0)
    assert complete_stalled(idle_seconds=0) == {}


def add_runs(count: int, outcome: Outcome, *, by: str) -> None:
    """Of the only entry; every run of it ended an hour less a minute ago."""
    ended = Now() - timedelta(minutes=59)
    LedgerAttempt.objects.update(started_at=ended, ended_at=ended)
    entry = LedgerEntry.objects.get()
    LedgerAttempt.objects.bulk_create(
        LedgerAttempt(
            entry=entry,
            fence=fence,
            owner=by,
            request_id="completer",  # whatever a caller sends as X-Request-Id
            started_at=ended,
            ended_at=ended,
            outcome=outcome,
        )
        for fence in range(100, 100 + count)
    )


def test_an_outcome_that_is_unknown_for_days_is_asked_for_hour_by_hour(caller: Caller) -> None:
    STEPS["outside"] = Response(202, {"state": "processing"})
    post(caller)
    add_runs(4 * RUNS_MAX, Outcome.UNCERTAIN, by="host:1:1")
    assert complete_stalled() == {"uncertain": 1}
    assert complete_stalled() == {}
    LedgerAttempt.objects.update(owner=f"{OWNER}host:1:1", ended_at=Now() - timedelta(minutes=59))
    assert complete_stalled() == {}
    LedgerAttempt.objects.update(ended_at=Now() - timedelta(minutes=61))
    assert complete_stalled() == {"uncertain": 1}


def test_who_heard_202_is_never_forgotten(caller: Caller) -> None:
    STEPS["outside"] = Response(202, {})
    post(caller)
    LedgerEntry.objects.update(recovery_point="")  # as entries of before have it, that an atomic step answered
    assert complete_stalled(idle_seconds=0) == {"failed": 1}
    assert LedgerEntry.objects.count() == 1


def test_a_completer_that_is_overtaken_goes_on_with_the_others(caller: Caller) -> None:
    STEPS["outside"] = Response(202, {})
    for key in ("k1", "k2"):
        post(caller, key)

    def be_overtaken() -> None:
        STEPS["during"] = None
        end_the_lease()
        entry = LedgerEntry.objects.get(key="k1")
        found = ledger.find(scope=entry.scope, key=entry.key)
        assert found is not None
        assert ledger.take_over(found, owner="a retry", request_id="", lease_seconds=30)

    STEPS.update(outside=Response(201, {}), during=be_overtaken)
    assert complete_stalled(idle_seconds=0) == {"taken": 1, "finished": 1}


quiet = Phases("tests.quiet", redact=("card",))


@quiet.outside("asked")
def ask(progress: Progress) -> Response:
    return Response(STEPS["status"], {"card": "4242", "paid": True})


@idempotent(mode=quiet)
def buy(request: HttpRequest, call: KeyedCall) -> Any:
    call.about("thing", 7)
    return quiet.respond(request, {})


@pytest.mark.parametrize("status", [202, 503])
@EVERYONE
def test_the_completer_hides_what_the_request_would_and_names_its_subject(
    effects: Effects, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.undo()  # what fails drops its lease
    STEPS["status"] = status
    buy(RequestFactory().post("/", headers={"Idempotency-Key": "k1"}))
    STEPS["status"] = 201
    assert complete_stalled(idle_seconds=0) == {"finished": 1}
    entry = LedgerEntry.objects.get()
    assert entry.subject == "thing:7"
    assert b"4242" not in bytes(entry.response_body or b"")
    assert b"paid" in bytes(entry.response_body or b"")


def called(phases: Phases, key: str = "k1") -> Any:
    """Call a view of these steps."""
    view = idempotent(mode=phases)(lambda request: phases.respond(request, {}))
    return view(RequestFactory().post("/", headers={"Idempotency-Key": key}))


@EVERYONE
def test_what_fails_after_the_commit_of_an_answer_takes_none_away(effects: Effects) -> None:
    phases = Phases("tests.hooked")

    @phases.atomic("started")
    def answer_and_fail(progress: Progress) -> Response:
        transaction.on_commit(lambda: 1 / 0)
        return Response(201, {"id": effect("hooked").pk})

    first, again = (called(phases) for _ in range(2))
    assert (first.status_code, again.status_code, again.content, effects()) == (201, 201, first.content, 1)


def test_the_completer_goes_on_over_batches_of_known_handlers(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotency.maintenance.completer.BATCH", 2)
    for number in range(6):
        die(caller, "reserved", f"k{number}")
    end_the_lease()
    LedgerEntry.objects.filter(key="k0").update(handler="of another project")
    seen: list[int] = []
    assert complete_stalled(limit=3, on_progress=seen.append) == {"finished": 3}
    assert complete_stalled() == {"finished": 2}
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    "result", [None, JsonResponse({}, status=409), {"id": 1}], ids=["none", "response", "dict"]
)
@pytest.mark.parametrize(("kind", "stayed"), [("atomic", 0), ("outside", 1)])
@EVERYONE
def test_after_a_step_that_ends_otherwise_nothing_follows(
    effects: Effects, kind: str, stayed: int, result: Any
) -> None:
    phases, paid = Phases(f"tests.{uuid4().hex}"), []

    @getattr(phases, kind)("started")
    def refuse(progress: Progress) -> Any:
        effect("refused")
        return result

    @phases.outside("next")
    def pay(progress: Progress) -> Response:
        paid.append(progress)
        return Response(201, {})

    with pytest.raises(TypeError, match=rf"'started' .* returned {type(result).__name__}. Return NoOp"):
        called(phases)
    assert (paid, effects()) == ([], stayed)


def test_mistakes_are_named() -> None:
    phases = Phases("tests.mistakes")

    async def never_awaited(progress: Progress) -> Any:
        return NoOp()

    @phases.atomic("started")
    def start(progress: Progress) -> NoOp:
        return NoOp()

    wrong: list[tuple[Callable[[], Any], str]] = [
        *(
            (partial(declare, never_awaited), r"never_awaited of the Phases 'tests\.mistakes' is async")
            for declare in (phases.atomic("ended"), phases.outside("ended"), phases.on_abandon)
        ),
        *(
            (partial(Response, status, {}), rf"Response\({status!r}, …\).* Write Response\(201, ")  # type: ignore[arg-type]
            for status in ("201", None, True, 99, 600)
        ),
        (lambda: Phases("tests.mistakes"), r"Phases named 'tests\.mistakes'"),
        (lambda: phases.outside("started")(start), "step at 'started'"),
        *(
            (partial(Phases, name), "name of Phases must have 1 to 96 printable")
            for name in ("", "n" * 97, "a\x00")
        ),
        (
            lambda: phases.outside("p" * 65)(start),
            "recovery point must have 1 to 64 printable characters, not 'ppp",
        ),
        (lambda: phases.respond(RequestFactory().post("/"), {}), r"must be decorated with @idempotent\(mode="),
    ]
    for call, sentence in wrong:
        with pytest.raises((TypeError, ValueError, RuntimeError), match=sentence):
            call()


@EVERYONE
def test_steps_that_lead_nowhere_are_named() -> None:
    phases = Phases("tests.nowhere")
    with pytest.raises(RuntimeError, match=r"'tests\.nowhere' have no step"):
        called(phases, "a")
    phases.atomic("started")(lambda progress: NoOp())
    with pytest.raises(RuntimeError, match="have no step at ''"):
        called(phases, "b")
    phases.atomic("circle")(lambda progress: RecoveryPoint("circle"))
    with pytest.raises(RuntimeError, match="did not end within"):
        called(phases, "c")
