"""Rows F01–F12 of docs/guarantees.md: processes that die, callers that do not hear, copies that meet."""

from typing import Any

from idempotency.models import LedgerEntry, State
from tests.system.failures.conftest import Stage
from tests.system.protocol.requests import BOTH, charge, order, outside
from tests.threads import in_background


@BOTH
def test_f01_killed_before_its_claim(stage: Stage, view: Any) -> None:
    stage.killed_before("claim" if view is order else "claim_phased", view)
    stage.happened(0)
    stage.ends_well(view)


def test_f02_atomic_killed_in_the_handler(stage: Stage) -> None:
    stage.killed_before("the effect", order)
    stage.happened(0)
    if stage.uses_redis:
        assert stage.is_held_off(stage.send(order))  # for MARKER_SECONDS
        stage.let_time_pass()
    stage.ends_well(order)


def test_f03_atomic_killed_before_its_commit(stage: Stage) -> None:
    stage.killed_before("record", order)
    stage.happened(0)
    assert not LedgerEntry.objects.exists()
    stage.let_time_pass()
    stage.ends_well(order)


@BOTH
def test_f04_killed_after_its_commit(stage: Stage, view: Any) -> None:
    stage.killed_before("finish", view)
    stage.happened(1)
    stage.ends_well(view)


@BOTH
def test_f05_the_answer_is_lost_on_its_way(stage: Stage, view: Any) -> None:
    lost = stage.send(view)
    assert stage.send(view) == lost
    stage.happened(1)


@BOTH
def test_f06_the_caller_asks_another_instance(stage: Stage, view: Any) -> None:
    """Nothing of the answer is in the process: another thread has other connections, and shares nothing else."""
    first = stage.send(view)
    assert in_background(lambda: stage.end(stage.start(view))).result() == first


def test_f07_phased_killed_before_the_call_outside(stage: Stage) -> None:
    stage.killed_before("the call outside", charge)
    assert outside.charged == {}
    assert stage.is_held_off(stage.send(charge))  # for LEASE_SECONDS
    stage.let_time_pass()
    stage.ends_well(charge)
    assert len(outside.charged) == 1


def test_f08_phased_killed_after_the_call_outside(stage: Stage) -> None:
    stage.killed_before("the result", charge)
    assert len(outside.charged) == 1
    stage.happened(0)
    stage.let_time_pass()
    stage.ends_well(charge)
    assert len(outside.charged) == 1


def test_f09_phased_killed_before_it_finished(stage: Stage) -> None:
    stage.killed_before("complete_phased", charge)
    stage.happened(1)
    assert LedgerEntry.objects.get().state == State.RUNNING
    stage.let_time_pass()
    stage.ends_well(charge)


def test_f10_phased_outlives_its_lease(stage: Stage) -> None:
    slow = stage.bring_before(stage.start(charge), "complete_phased")
    stage.let_time_pass()
    winner = stage.send(charge)
    assert stage.end(slow) == winner
    assert LedgerEntry.objects.get().fence == 2
    stage.happened(1)


@BOTH
def test_f11_a_copy_comes_while_the_first_runs(stage: Stage, view: Any) -> None:
    first = stage.bring_before(stage.start(view), "the effect" if view is order else "the result")
    assert stage.is_held_off(stage.send(view))
    answer = stage.end(first)
    assert (answer[0], stage.send(view)) == (201, answer)
    stage.happened(1)


@BOTH
def test_f12_another_request_comes_under_the_key(stage: Stage, view: Any) -> None:
    first = stage.send(view)
    other = stage.send(view, body='{"other": 1}')
    assert (other[0], "idempotency_key_reused" in other[1]) == (422, True)
    assert stage.send(view) == first
    stage.happened(1)
