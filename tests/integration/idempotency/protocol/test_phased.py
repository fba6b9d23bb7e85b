"""Phased mode: lease, fencing number, resumption, and unknown outcomes."""

from typing import Any

import pytest
import redis
from django.core.exceptions import SuspiciousOperation
from django.http import HttpResponse
from django.test import override_settings

from idempotency import ledger
from idempotency.models import LedgerEntry, State
from idempotency.protocol.phases import PhasedExchange
from tests.integration.idempotency.conftest import Caller, Effects
from tests.integration.idempotency.urls import PLAN

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.integration.idempotency.urls")]


def found() -> ledger.Entry:
    entry = LedgerEntry.objects.get()
    looked_up = ledger.find(scope=entry.scope, key=entry.key)
    assert looked_up is not None
    return looked_up


def test_an_answer_not_to_store_frees_the_key_unless_a_run_before_it_may_have_done_something(
    caller: Caller,
) -> None:
    def refuse() -> None:
        raise SuspiciousOperation("no")

    for handler in ("idempotency.drf.exception_handler", "rest_framework.views.exception_handler"):
        PLAN["during"] = refuse
        with override_settings(REST_FRAMEWORK={"EXCEPTION_HANDLER": handler}):
            assert caller.post("/phased", body={}).status_code == 400
        assert LedgerEntry.objects.count() == 0
    PLAN["during"] = None
    for answer in ("crash", 429):
        PLAN["answer"] = answer
        caller.post("/phased", body={})
    assert LedgerEntry.objects.count() == 1


def test_uncertain_is_202_and_replayed_with_the_current_state_also_after_a_run_that_broke(
    caller: Caller, effects: Effects, redis_server: redis.Redis, settings: Any
) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "ON_REPLAY": "tests.integration.idempotency.urls.note_replay"}
    PLAN.update(answer=202, state="uncertain")
    first = caller.post("/phased", body={})
    assert (first.status_code, first.json()) == (202, {"state": "uncertain"})
    assert not {"Idempotent-Replayed", "X-Replays"} & first.headers.keys()
    assert LedgerEntry.objects.get().state == State.UNCERTAIN
    still = caller.post("/phased", body={})
    assert (still.status_code, still["Idempotent-Replayed"], still["X-Replays"]) == (202, "true", "of all")
    assert (still["Cache-Control"], "Authorization" in still["Vary"]) == ("no-store", True)
    for broken, status in (("crash", 500), (503, 503)):
        PLAN["answer"] = broken
        assert caller.post("/phased", body={}).status_code == status
    PLAN.update(answer=201, state="pending")
    known = caller.post("/phased", body={})
    assert (known.status_code, known.json()) == (202, {"state": "pending"})
    assert (known["Idempotent-Replayed"], known["X-Replays"]) == ("true", "of all")
    assert LedgerEntry.objects.get().state == State.FINISHED
    PLAN.update(state="succeeded")
    redis_server.flushdb()
    later = caller.post("/phased", body={})
    assert (later.status_code, later.json()) == (202, {"state": "succeeded"})
    assert effects() == 1


def test_a_retry_that_looked_while_the_first_ran_knows_that_it_was_answered_202(caller: Caller) -> None:
    seen: list[ledger.Entry] = []
    PLAN.update(answer=202, during=lambda: seen.append(found()))
    assert caller.post("/phased", body={}).status_code == 202
    assert seen[0].state == State.RUNNING
    retry = PhasedExchange.of_entry(seen[0], asker="test", request_id="")
    assert retry.resume(seen[0])
    assert retry.finish(HttpResponse(status=201)).status_code == 202


def test_an_uncertain_outcome_may_turn_out_a_refusal(caller: Caller) -> None:
    PLAN.update(answer=202)
    caller.post("/phased", body={})
    PLAN.update(answer=409)
    assert caller.post("/phased", body={}).status_code == 409
    PLAN.update(answer=201)
    again = caller.post("/phased", body={})
    assert (again.status_code, again["Idempotent-Replayed"]) == (409, "true")
