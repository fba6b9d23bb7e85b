"""`Phases` behind every door: each runs the steps, dies at one and goes on there."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from idempotency.models import LedgerEntry, State
from tests.integration.idempotency.conftest import Effects, end_the_lease
from tests.integration.idempotency.protocol.optional import DECORATED, Caller
from tests.integration.idempotency.urls import PLAN, STEPS, Killed, steps

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("the_dead_drop_nothing")]
ANSWER = b'{"amount": 5, "receipt": "r-5"}'
ALL = ["started", "reserved", "charged", "noted"]


@pytest.fixture(params=DECORATED)
def caller(request: pytest.FixtureRequest, user: User) -> Caller:
    PLAN["handler"] = lambda request, view: steps.respond(request, {"amount": 5})
    return Caller(DECORATED[request.param](mode=steps), user)


@pytest.mark.parametrize(
    ("caller", "point"),
    [*((door, "reserved") for door in DECORATED), ("function", "started"), ("function", "charged")],
    indirect=["caller"],
)
def test_a_retry_goes_on_at_the_step_that_died(caller: Caller, effects: Effects, point: str) -> None:
    STEPS["die_at"] = point
    with pytest.raises(Killed):
        caller.post(key="k1")
    STEPS["die_at"] = ""
    assert caller.post(key="k1").status_code == 409  # its lease still runs
    end_the_lease()
    retry, again = (caller.post(key="k1") for _ in range(2))
    assert (retry.status_code, retry.content) == (201, ANSWER)
    assert (again.status_code, again.content, again["Idempotent-Replayed"]) == (201, ANSWER, "true")
    died = ALL.index(point)
    assert STEPS["calls"] == [*ALL[: died + 1], *ALL[died:]]
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
    assert (STEPS["calls"], effects(), LedgerEntry.objects.count()) == (ALL * 2, 4, 0)
