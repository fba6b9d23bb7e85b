"""`Phases` behind every door that takes them: each runs the steps, dies at one and goes on there."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection

from idempotency import NoOp, Phases, Progress, RecoveryPoint, Response, ledger
from idempotency.models import LedgerEntry, State
from tests.integration.idempotency.conftest import Effects, end_the_lease
from tests.integration.idempotency.protocol.optional import DECORATED, Caller
from tests.integration.idempotency.urls import PLAN, effect

pytestmark = pytest.mark.django_db(transaction=True)
ANSWER = b'{"amount": 5, "number": "n1"}'
POINTS = ["started", "reserved", "charged"]
ALL = [("started", True), ("reserved", False), ("charged", True)]  # and whether in a transaction


class Killed(BaseException):
    """As good as SIGKILL: nothing of ours runs after it."""


def _pass(point: str) -> None:
    PLAN.setdefault("passed", []).append((point, connection.in_atomic_block))
    if PLAN.get("die at") == point:
        raise Killed


def charging() -> Phases:
    """Make the steps of a charge; each door has its own, for a name is unique in a project."""
    steps = Phases(f"tests.{uuid4().hex}")

    @steps.atomic("started")
    def reserve(progress: Progress) -> RecoveryPoint:
        effect("reserved")
        _pass("started")
        return RecoveryPoint("reserved", {"number": "n1"})

    @steps.outside("reserved")
    def charge(progress: Progress) -> NoOp:
        _pass("reserved")
        return NoOp()

    @steps.atomic("charged")
    def book(progress: Progress) -> Response:
        effect("booked")
        _pass("charged")
        return Response(201, progress.data)

    return steps


@pytest.fixture(params=DECORATED)
def caller(request: pytest.FixtureRequest, user: User, monkeypatch: pytest.MonkeyPatch) -> Caller:
    monkeypatch.setattr(ledger, "drop_lease", lambda run: None)  # the dead drop nothing
    steps = charging()
    PLAN["handler"] = lambda request, view: steps.respond(request, {"amount": 5})
    return Caller(DECORATED[request.param](mode=steps), user)


@pytest.mark.parametrize(
    ("caller", "point"),
    [*((door, "reserved") for door in DECORATED), ("function", "started"), ("function", "charged")],
    indirect=["caller"],
)
def test_a_retry_goes_on_at_the_step_that_died(caller: Caller, effects: Effects, point: str) -> None:
    PLAN["die at"] = point
    with pytest.raises(Killed):
        caller.post(key="k1")
    PLAN.pop("die at")
    assert caller.post(key="k1").status_code == 409  # its lease still runs
    end_the_lease()
    retry, again = (caller.post(key="k1") for _ in range(2))
    assert (retry.status_code, retry.content) == (201, ANSWER)
    assert (again.status_code, again.content, again["Idempotent-Replayed"]) == (201, ANSWER, "true")
    died = POINTS.index(point)
    assert PLAN["passed"] == [*ALL[: died + 1], *ALL[died:]]
    assert (effects(), LedgerEntry.objects.get().state) == (2, State.FINISHED)


@pytest.mark.parametrize(
    ("caller", "keys"),
    [
        *((door, {"REQUIRED": False}) for door in ("function", "async function", "APIView", "Ninja")),
        ("function", {"ENABLED": False}),
    ],
    indirect=["caller"],
    ids=str,
)
def test_without_a_key_the_steps_run_each_time(
    caller: Caller, effects: Effects, settings: Any, keys: dict[str, bool]
) -> None:
    settings.IDEMPOTENCY = keys
    answers = [caller.post(key=None if "REQUIRED" in keys else "k1") for _ in range(2)]
    said = None if "REQUIRED" in keys else "disabled"
    assert [(answer.content, answer.get("Idempotency")) for answer in answers] == [(ANSWER, said)] * 2
    assert (PLAN["passed"], effects(), LedgerEntry.objects.count()) == (ALL * 2, 4, 0)
