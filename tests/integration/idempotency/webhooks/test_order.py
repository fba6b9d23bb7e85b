"""Events of one entity: early ones are held, and follow their predecessor."""

from functools import partial
from threading import Event
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from idempotency.maintenance import reap
from idempotency.models import WebhookEvent
from idempotency.webhooks import apply_stored_events, queries, replay
from tests.emptying import filled, plan_of
from tests.integration.idempotency.webhooks.hooks import ATTEMPTS_MAX, PLAN, applied, applied_days_ago, send, step
from tests.running import until
from tests.threads import at_once

IN_ORDER = ["o1-1", "o1-2", "o1-3"]
LAST_ONES = """
INSERT INTO idempotency_webhookevent (sender, event_id, entity, sequence, headers, status, attempts, applied_at)
SELECT 'ordered', n, n, 1, '{}', 'applied', 1, now() - interval '400 days' FROM generate_series(1, 3000) AS n
"""


@pytest.mark.parametrize("order", [(1, 3, 2), (2, 3, 1), (3, 2, 1)])
def test_any_order_of_arrival_is_applied_in_order(order: tuple[int, ...]) -> None:
    answers = [step(number).json()["status"] for number in order]
    assert applied() == IN_ORDER
    assert answers[0] == ("applied" if order[0] == 1 else "held")
    assert [step(number).json()["status"] for number in order] == ["duplicate"] * 3


def test_so_are_those_that_arrive_at_once() -> None:
    at_once(*[partial(step, number) for number in [3, 2, 1, 3, 2, 1]])
    assert applied() == IN_ORDER


def test_a_successor_waits_while_its_predecessor_is_applied() -> None:
    """Held in that moment, it would miss that its predecessor's request looks for what is held."""
    inside, go = Event(), Event()
    answers: list[str] = []

    def stand_still() -> None:
        inside.set()
        go.wait(30)

    def follow() -> None:
        inside.wait(30)
        answers.append(step(2).json()["status"])

    def release() -> None:
        with connection.cursor() as cursor:
            until(lambda: answers or _waiting(cursor))
        go.set()

    PLAN["o1-1"] = stand_still
    at_once(lambda: step(1), follow, release)
    assert (answers, applied()) == (["applied"], ["o1-1", "o1-2"])


def _waiting(cursor: Any) -> bool:
    cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    return bool(cursor.fetchone()[0])


def test_a_failed_one_holds_up_its_successors_alone_and_a_copy_lets_them_go() -> None:
    PLAN["o1-1"] = RuntimeError("not yet")
    assert (step(1).status_code, step(2).json(), apply_stored_events()) == (500, {"status": "held"}, {})
    assert step(1, "o2").json() == {"status": "applied"}
    PLAN.clear()
    assert step(1).json() == {"status": "applied"}
    assert applied() == ["o2-1", "o1-1", "o1-2"]


@pytest.mark.parametrize("then", ["worker", "copy"])
def test_those_go_too_whose_predecessors_process_died_after_its_commit(then: str) -> None:
    for number in (2, 3):
        step(number)
    PLAN["o1-3"] = RuntimeError("not yet")
    WebhookEvent.objects.create(
        **{"sender": "ordered", "event_id": "o1-1", "entity": "o1", "sequence": 1, "body": b"{}"},
        **{"status": "applied", "applied_at": timezone.now(), "attempts": 1},
    )
    if then == "copy":
        assert step(1).json() == {"status": "duplicate"}
    else:
        with pytest.raises(CommandError, match="1 could not be applied"):  # the successor's successor
            call_command("idempotency", "apply")
    assert (applied(), apply_stored_events()) == (["o1-2"], {})


def test_a_person_may_apply_what_is_held_and_nobody_else() -> None:
    PLAN["o1-1"] = RuntimeError("never")
    for _ in range(ATTEMPTS_MAX):
        step(1)
    step(2)
    step(3)
    with pytest.raises(IntegrityError, match="its predecessor is not applied"), transaction.atomic():
        WebhookEvent.objects.filter(sequence=2).update(status="applied", applied_at=timezone.now())
    held = WebhookEvent.objects.get(sequence=2)
    assert replay(held.pk, operator="ann", note="the first was done by hand") == "applied"
    assert applied() == ["o1-2", "o1-3"]


@pytest.mark.parametrize("first", [[], [1]])
@pytest.mark.parametrize("followed", [False, True])
def test_none_is_applied_backwards_but_by_a_person(first: list[int], followed: bool) -> None:
    late = len(first) + 1
    for number in [*first, late + 1, *([late + 2] if followed else [])]:
        step(number)
    replay(WebhookEvent.objects.get(sequence=late + 1).pk, operator="ann", note="the one before is lost")
    before = applied()
    assert (step(late).json(), apply_stored_events(), applied()) == ({"status": "held"}, {}, before)
    assert replay(WebhookEvent.objects.get(sequence=late).pk, operator="ann", note="harmless") == "applied"
    assert applied() == [*before, f"o1-{late}"]


def test_of_two_events_with_one_number_the_second_is_held_for_a_person() -> None:
    assert [step(1).json(), step(2).json()] == [{"status": "applied"}] * 2
    again = {"id": 5, "order": "o1", "number": 2}  # an id may be a number
    assert send("ordered", body=again).json() == {"status": "held"}
    assert (apply_stored_events(), applied()) == ({}, ["o1-1", "o1-2"])


def test_the_last_of_an_entity_is_remembered_and_a_copy_of_one_before_it_is_held() -> None:
    for number in (1, 2):
        step(number)
    applied_days_ago(400)
    assert [reap()["events"], reap()["events"]] == [2, 0]
    assert step(3).json() == {"status": "applied"}
    assert (step(1).json(), apply_stored_events()) == ({"status": "held"}, {})
    assert applied() == IN_ORDER
    applied_days_ago(400)
    assert reap()["events"] == 1
    assert set(WebhookEvent.objects.values_list("sequence", flat=True)) == {1, 3}


def test_to_find_none_to_forget_reads_none_that_is_remembered() -> None:
    with filled(LAST_ONES, ("idempotency_webhookevent",)), connection.cursor() as cursor:
        assert reap(batch=3_000)["events"] == 3_000
        cursor.execute("VACUUM ANALYZE idempotency_webhookevent")
        plan = plan_of(queries.DROP, [86_400, 500])
        assert WebhookEvent.objects.count() == 3_000
    assert "webhook_old" in plan
    assert "Rows Removed" not in plan
