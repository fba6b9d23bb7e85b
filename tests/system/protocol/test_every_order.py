"""Every order of two requests, with a kill or a flush at every place; and planted bugs.

The second half plants bugs of other implementations, one for each thing that can happen. Each must be found: a
checker that cannot fail proves nothing.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis
from django.db import connection
from django.db.models.functions import Now
from django.test import override_settings

from idempotency import ledger
from idempotency.ledger.claiming import UNIQUE
from idempotency.models import LedgerEntry, State
from idempotency.postgres import statements
from tests.emptying import rows
from tests.system.protocol import requests
from tests.system.protocol.explorer import Actor, Event, Run, Violation, every_list, stop

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_with_redis")]

RUNS_MAX = 20_000
EMPTY = "DELETE FROM idempotency_ledgerattempt; DELETE FROM idempotency_ledgerentry; DELETE FROM auth_group"


@pytest.fixture
def _with_redis() -> Iterator[None]:
    with override_settings(IDEMPOTENCY=requests.SETTINGS):
        yield


def flush(server: redis.Redis) -> Event:
    return Event("Redis is flushed", server.flushdb, "marker")


LEASES_END = Event("the leases end", requests.end_leases, "ledger")


class Case:
    """Two copies of one request, and what may happen to them."""

    def __init__(self, view: Any, server: redis.Redis, *, kills: int = 0, events: Sequence[Event] = ()) -> None:
        self.view, self.server, self.kills, self.events = view, server, kills, list(events)
        self.outcomes: set[Any] = set()

    def __call__(self, run: Run) -> None:
        rows(EMPTY)
        self.server.flushdb()
        requests.outside.charged.clear()
        actors = [Actor(name, lambda: requests.send(self.view, "k1")) for name in "AB"]
        run.execute(actors, self.events, kills=self.kills)
        answers = [actor.answer for actor in actors if actor.answer is not None]
        requests.let_time_pass(self.server)
        requests.check(answers, requests.send(self.view, "k1"))
        self.outcomes.add(tuple(sorted(status for status, _ in answers)))


def test_the_orders_left_out_bring_nothing_new(redis_server: redis.Redis) -> None:
    all_of_them, reduced = Case(requests.order, redis_server), Case(requests.order, redis_server)
    count = every_list(all_of_them, runs_max=RUNS_MAX, reduced=False)
    fewer = every_list(reduced, runs_max=RUNS_MAX)
    print(f"{count} orders, {fewer} of different meaning")
    assert fewer < count
    assert reduced.outcomes == all_of_them.outcomes


@requests.BOTH
@pytest.mark.parametrize(
    "settings", [requests.SETTINGS, requests.WITHOUT_REDIS], ids=["with Redis", "without Redis"]
)
def test_two_at_once_of_which_one_may_be_killed(settings: Any, redis_server: redis.Redis, view: Any) -> None:
    with override_settings(IDEMPOTENCY=settings):
        print(every_list(Case(view, redis_server, kills=1), runs_max=RUNS_MAX), "orders")


@requests.BOTH
def test_two_at_once_and_redis_is_flushed_anywhere(redis_server: redis.Redis, view: Any) -> None:
    print(every_list(Case(view, redis_server, events=[flush(redis_server)]), runs_max=RUNS_MAX), "orders")


def test_phased_and_the_lease_ends_anywhere(redis_server: redis.Redis) -> None:
    print(every_list(Case(requests.charge, redis_server, events=[LEASES_END]), runs_max=RUNS_MAX), "orders")


# The known bugs of others, planted: every one must be found.


@pytest.fixture
def _without_the_constraint() -> Iterator[None]:
    rows(f"ALTER TABLE idempotency_ledgerentry DROP CONSTRAINT {UNIQUE}")
    yield
    LedgerEntry.objects.all().delete()
    rows(f"ALTER TABLE idempotency_ledgerentry ADD CONSTRAINT {UNIQUE} UNIQUE (key, scope)")


@pytest.fixture
def _new_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every try calls outside under a number of its own."""
    numbers = itertools.count()
    monkeypatch.setattr(requests, "number_of", lambda request: str(next(numbers)))


def must_be_found(case: Case, promise: str) -> None:
    with pytest.raises(Violation, match=promise) as found:
        every_list(case, runs_max=RUNS_MAX)
    print(found.value)


@pytest.mark.usefixtures("_without_the_constraint")
def test_found_a_marker_that_decides_alone(redis_server: redis.Redis) -> None:
    """Redis as the judge: it is enough that it forgets."""
    must_be_found(Case(requests.order, redis_server, events=[flush(redis_server)]), "2 effects")


def test_found_a_ledger_row_committed_apart_from_the_effect(
    redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits, as in every implementation that stores the answer in a middleware."""
    # a PREPARE inside the first transaction begins it early, and the planted commit would end a savepoint with it
    monkeypatch.setattr(statements, "USES", math.inf)
    original = ledger.record

    def commit_first(identity: Any, answer: Any, *, subject: str) -> bool:
        connection.connection.commit()  # a COMMIT by a cursor is refused
        stop("the second commit", touches="ledger")
        return original(identity, answer, subject=subject)

    monkeypatch.setattr(ledger, "record", commit_first)
    must_be_found(Case(requests.order, redis_server, kills=1), "2 effects")


def test_found_a_completion_without_compare_and_set(
    redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one overwrites what another was already answered."""

    def overwrite(run: Any, answer: Any, *, subject: str) -> bool:
        stop("the overwriting", touches="ledger")
        LedgerEntry.objects.filter(pk=run.entry_id).update(
            state=State.FINISHED,
            lease_until=None,
            response_status=answer.status,
            response_headers=answer.headers,
            response_body=answer.body,
            finished_at=Now(),
        )
        return True

    monkeypatch.setattr(ledger, "complete_phased", overwrite)
    must_be_found(Case(requests.charge, redis_server, events=[LEASES_END]), "different answers")


@pytest.mark.usefixtures("_new_numbers")
def test_found_a_new_number_for_every_try(redis_server: redis.Redis) -> None:
    """A crash after the call outside, and the retry charges again."""
    must_be_found(Case(requests.charge, redis_server, kills=1), "2 effects|charged 2 times")
