"""A Hypothesis state machine of ledger and marker: requests of one key in any order, with crashes and outages.

Where `test_every_order` goes through all orders of two requests, this goes further in: other bodies under the same
key, handlers that refuse, break or time out, Redis away or back, days that pass, the reaper at work.
"""

import json
import random
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import Group
from django.db.models import F
from django.test import override_settings
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from idempotency.maintenance.reaper import reap
from idempotency.models import LedgerEntry, State
from idempotency.redis import fastpath
from tests.system.protocol import requests
from tests.system.protocol.explorer import Actor, Run

ALIVE_MAX = 3
KEYS = st.sampled_from(["charge", "order"])
AMOUNTS = st.sampled_from([1, 1, 1, 1, 1, 2])
PLANS = st.sampled_from(["succeed", "succeed", "succeed", "refuse", "break", "time out"])
STOPS = st.integers(1, 8)
INDEX = st.integers(0, ALIVE_MAX - 1)

SERVER: list[redis.Redis] = []  # the machine is made by Hypothesis, without arguments


class LedgerAndMarker(RuleBasedStateMachine):
    """The model: what was heard for good, and whether its bytes were purged."""

    def __init__(self) -> None:
        super().__init__()
        self.redis = SERVER[0]
        self.redis.flushdb()
        fastpath.breaker.succeeded()
        Group.objects.all().delete()
        LedgerEntry.objects.all().delete()
        requests.outside.charged.clear()
        self.run_ = Run([])
        self.alive: list[Actor] = []
        self.key = ""
        self.asked: set[int] = set()
        self.heard: set[tuple[int, int, str]] = set()
        self.purged = False

    @initialize(key=KEYS)
    def a_key_is_made(self, key: str) -> None:
        self.key = key

    @precondition(lambda self: len(self.alive) < ALIVE_MAX)
    @rule(amount=AMOUNTS, plan=PLANS, stops=STOPS)
    def a_request_comes(self, amount: int, plan: str, stops: int) -> None:
        actor = Actor(f"{amount} {plan}", lambda: self.send(amount, plan))
        self.run_.start(actor)
        self.alive.append(actor)
        self.goes_on(len(self.alive) - 1, stops)

    @precondition(lambda self: self.alive)
    @rule(index=INDEX, stops=STOPS)
    def goes_on(self, index: int, stops: int) -> None:
        actor = self.alive[index % len(self.alive)]
        while stops and not actor.done:
            stops -= 1
            self.run_.let_go(actor)
        self._bury()

    @precondition(lambda self: self.alive)
    @rule(index=INDEX)
    def is_killed(self, index: int) -> None:
        self.run_.let_go(self.alive[index % len(self.alive)], kill=True)
        self._bury()

    @rule()
    def leases_end(self) -> None:
        requests.end_leases()

    @rule(what=st.sampled_from(["flush", "away", "back", "running markers end"]))
    def the_world_changes(self, what: str) -> None:
        match what:
            case "flush":
                self.redis.flushdb()
            case "away":
                fastpath.breaker.failed(open_seconds=3600)
            case "back":
                fastpath.breaker.succeeded()
            case "running markers end":
                requests.drop_markers(self.redis, b"R")

    @rule(hours=st.sampled_from([1, 25]))
    def time_passes_and_the_reaper_works(self, hours: int) -> None:
        """Markers end by their own time, which is shorter than that of the bytes."""
        requests.drop_markers(self.redis, b"R", b"F")
        past = timedelta(hours=hours)
        unfinished = LedgerEntry.objects.exclude(state=State.FINISHED)
        before = unfinished.count()
        LedgerEntry.objects.update(created_at=F("created_at") - past, finished_at=F("finished_at") - past)
        reap()
        assert unfinished.count() == before, "the reaper took an unfinished entry"
        self.purged = LedgerEntry.objects.filter(purged_at__isnull=False).exists()

    @invariant()
    def everything_happened_at_most_once(self) -> None:
        effects, charges = requests.effects(self.key), len(requests.outside.charged)
        assert effects <= 1, f"{effects} effects"
        assert charges <= 1, f"charged {charges} times"
        for status, _, body in self.heard:
            assert effects == (status == 201), f"heard {status} {body}, {effects} effects"

    def teardown(self) -> None:
        for actor in self.alive:
            if not actor.done:
                self.run_.let_go(actor, kill=True)
        self.the_world_changes("back")
        self.the_world_changes("flush")
        self.leases_end()
        answers = [(self.send(amount, "succeed"), amount) for amount in sorted(self.asked)]
        owners = [amount for status, amount in answers if status != 422]
        assert len(owners) == bool(self.asked), answers
        self.everything_happened_at_most_once()

    def send(self, amount: int, plan: str) -> int:
        """Status of one request, whose answer must fit what was heard before."""
        self.asked.add(amount)
        view = requests.charge if self.key == "charge" else requests.order
        status, body = requests.send(view, self.key, json.dumps({"amount": amount}), plan)
        code = json.loads(body).get("code", "") if body else ""
        where = f"{self.key} {amount} {plan}: {status} {body}"
        if status == 201 or code == "refused":
            self.heard.add((status, amount, body))
            assert len(self.heard) == 1, f"{where}, but heard before: {self.heard}"
        elif status == 202:
            assert view is requests.charge, where
        elif status == 500:
            assert plan == "break", where
        elif status == 410:
            assert self.purged, where
        elif code == "idempotency_key_reused":
            assert len(self.asked) == 2, where
        else:
            assert code == "idempotency_in_progress", where
        return status

    def _bury(self) -> None:
        self.alive = [actor for actor in self.alive if not actor.done]


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(900)  # to find a shorter sequence takes longer than to find one
def test_no_sequence_of_requests_crashes_and_outages_does_anything_twice(redis_server: redis.Redis) -> None:
    number = random.randrange(10**9)
    print(f"seed {number}")
    SERVER[:] = [redis_server]
    many = settings(
        max_examples=20,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        database=None,
    )
    with override_settings(IDEMPOTENCY=requests.SETTINGS):
        machine: Any = seed(number)(LedgerAndMarker)
        run_state_machine_as_test(machine, settings=many)
