"""Rates by a sliding window and by a token bucket, overall and for each client."""

import pickle
from typing import Any

import pytest

from idempotency.locks import Rate, RateExceeded
from tests.integration.idempotency.locks.conftest import Bench

pytestmark = pytest.mark.parametrize("kind", ["RateLimiter", "TokenBucket"])


def _takes(actor: Any, limiter: Any, permits: int = 1, **how: Any) -> bool:
    try:
        actor.do(lambda: limiter.acquire(permits, **how))
    except RateExceeded:
        return False
    return True


def test_no_more_than_the_rate_overall_and_for_each_client(bench: Bench, kind: str) -> None:
    limiter = bench.make(kind, permits=3, interval_seconds=600, permits_per_client=2)
    actor = bench.actor()
    assert _takes(actor, limiter, 2, caller="one")
    assert not _takes(actor, limiter, caller="one")
    assert [actor.do(lambda who=who: limiter.available(caller=who)) for who in ("one", "two", None)] == [0, 1, 1]
    assert _takes(actor, limiter, caller="two")
    assert not _takes(actor, limiter, caller="three")
    actor.do(lambda: limiter.release(2, caller="one"))
    assert actor.do(limiter.available) == 2
    assert _takes(actor, limiter, 2, caller="one")
    for permits in (3, 0):
        with pytest.raises(ValueError, match="permits must be"):
            _takes(actor, limiter, permits, caller="four")


def test_the_servers_rate_counts_for_all_and_keeps_what_was_used(bench: Bench, kind: str) -> None:
    limiter, without = bench.make(kind, permits=2, interval_seconds=600), bench.make(kind)
    actor = bench.actor()
    with pytest.raises(ValueError, match="permits must be 1 to 0"):
        _takes(actor, without)
    assert actor.do(limiter.rate) == Rate(2, 600.0)
    assert _takes(actor, limiter, 2, caller="one")
    assert actor.do(lambda: without.set_rate(Rate(5, 900, 4))) is True
    assert actor.do(lambda: without.set_rate(Rate(9, 1), if_absent=True)) is False
    assert actor.do(limiter.rate) == actor.do(without.rate) == Rate(5, 900.0, 4)
    assert actor.do(limiter.available) == 3
    assert _takes(actor, limiter, 3, caller="one")  # the share counts from when there was one
    assert not _takes(actor, without)
    assert actor.do(lambda: without.set_rate(Rate(1, 900))) is True
    assert actor.do(limiter.available) == 0  # five are used, and one is allowed


@pytest.mark.parametrize("way", ["clear", "delete"])
def test_what_was_used_is_forgotten_for_clients_too(bench: Bench, kind: str, way: str) -> None:
    limiter = bench.make(kind, permits=4, interval_seconds=600, permits_per_client=2)
    actor = bench.actor()
    for caller in ("one", "two"):
        assert _takes(actor, limiter, 2, caller=caller)
    assert not _takes(actor, limiter, caller="three")
    if way == "clear":
        assert actor.do(lambda: limiter.set_rate(Rate(5, 600, 2), clear=True)) is True
        assert actor.do(limiter.available) == 5
        assert actor.do(limiter.delete) is True
    assert actor.do(limiter.delete) is False
    assert actor.do(limiter.rate) == Rate(4, 600.0, 2)
    for caller in ("one", "two"):
        assert _takes(actor, limiter, 2, caller=caller)
    assert not _takes(actor, limiter, caller="three")


def test_the_share_of_each_caller_is_named_while_it_counts(bench: Bench, kind: str) -> None:
    limiter, actor = bench.make(kind, permits=9, interval_seconds=600, permits_per_client=2), bench.actor()
    assert actor.do(limiter.shares) == {}
    for caller, permits in (("one", 1), ("two: b", 2), ("one", 1), (None, 1)):
        assert _takes(actor, limiter, permits, caller=caller)
    assert actor.do(limiter.shares) == {"one": 2, "two: b": 2}
    assert list(actor.do(lambda: limiter.shares(most=1))) == ["one"]  # the latest
    actor.do(lambda: limiter.release(2, caller="two: b"))
    assert actor.do(limiter.shares) == {"one": 2}
    assert 0 < bench.plain.pttl(f"{limiter._key}#clients") <= 600_100
    assert actor.do(lambda: limiter.set_rate(Rate(9, 600, 2), clear=True)) is True
    assert actor.do(limiter.shares) == {}


def test_a_caller_that_waits_gets_its_time(bench: Bench, kind: str) -> None:
    limiter, actor = bench.make(kind, permits=1, interval_seconds=0.05), bench.actor()
    for seconds in (10, None, 10, None):
        assert _takes(actor, limiter, wait_seconds=seconds)
    slow = bench.make(kind, "slow", permits=2, interval_seconds=600)
    assert _takes(actor, slow, 2, wait_seconds=-1)  # what is left of a wait that is over
    with pytest.raises(RateExceeded) as refused:
        actor.do(slow.acquire)
    most = 600 if kind == "RateLimiter" else 300
    travelled = pickle.loads(pickle.dumps(refused.value))  # as from a worker of a process pool
    assert str(travelled) == str(refused.value)
    assert most - 30 < travelled.retry_after_seconds == refused.value.retry_after_seconds <= most
