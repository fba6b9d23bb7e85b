"""The server's clock steps back by an hour while locks are held and waited for, and limits used.

No other clock is asked than the server's, and all that it shows is in its own records. So a step of it is the same
as records that are younger; that is what the tests do to them.
"""

import re
import struct
from pathlib import Path

import pytest
import redis

from idempotency.locks import Rate, RateExceeded
from idempotency.locks.engine.hub import tagged
from tests.integration.idempotency.locks.conftest import Bench

HOUR = 3_600_000_000  # in the server's microseconds
THING = tagged("lock", "thing")


def step_back(client: redis.Redis) -> None:
    """As if the server's clock had been put back by an hour."""
    for field, record in client.hgetall(THING).items():
        one, two, three, four = struct.unpack(">dddd", record[:32])
        times = (one, two + HOUR, three + HOUR, four + HOUR) if field == b"#" else (one, two, three + HOUR, four)
        client.hset(THING, field, struct.pack(">dddd", *times) + record[32:])
    for owner, waiter in client.hgetall(f"{THING}:waiters").items():
        shared, exclusive, alive, rest = waiter.split(b" ", 3)
        later = b" ".join([shared, exclusive, str(int(alive) + HOUR).encode(), rest])
        client.hset(f"{THING}:waiters", owner, later)
    for owner, arrival in client.zrange(f"{THING}:queue", 0, -1, withscores=True):
        client.zadd(f"{THING}:queue", {owner: arrival + HOUR})


def test_tokens_grow_and_nobody_waits_for_an_hour(desk: Bench) -> None:
    lock = desk.make("FairLock")
    first, second, third = desk.actors(3)
    assert first.do(lock.acquire)
    token = first.do(lambda: lock.token)
    waiting = second.begin(lock.acquire)
    desk.waits(1)
    step_back(desk.plain)
    first.do(lock.release)
    assert waiting.result(30) is True
    assert second.do(lambda: lock.token) > token
    late = third.begin(lock.acquire)
    desk.waits(1)
    second.do(lock.release)
    assert late.result(30) is True
    assert third.do(lambda: lock.token) > token + 1
    third.do(lock.release)


def step_of_a_limit(client: redis.Redis, key: str, later: int) -> None:
    """As `step_back`, for what a limit has given."""
    for each in client.keys(f"{key}*"):
        kind = client.type(each)
        if kind == b"zset":
            client.zadd(each, {member: at + later for member, at in client.zrange(each, 0, -1, withscores=True)})
        elif kind == b"hash" and (seen := client.hget(each, "seen")):
            client.hset(each, "seen", int(seen) + later)
        elif each in {key.encode(), f"{key}:one".encode()}:
            out, at = struct.unpack(">dd", client.get(each))
            client.set(each, struct.pack(">dd", out, at + later))


@pytest.mark.parametrize("kind", ["RateLimiter", "TokenBucket"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_limit_is_the_same_by_a_clock_that_steps_back(desk: Bench, kind: str, stored: bool) -> None:
    limiter = desk.make(kind, permits=2, interval_seconds=600, permits_per_client=2)
    if stored:
        limiter.set_rate(Rate(2, 600, 2))
    limiter.acquire(2, caller="one")
    step_of_a_limit(desk.plain, limiter._key, HOUR)
    with pytest.raises(RateExceeded) as refused:
        limiter.acquire(2, caller="one")
    assert refused.value.retry_after_seconds <= 600
    step_of_a_limit(desk.plain, limiter._key, -600_000_000)  # so much time has passed
    assert (limiter.available(), limiter.available(caller="one")) == (2, 2)
    assert limiter.delete() is stored
    limiter.acquire(2, caller="one")
    with pytest.raises(RateExceeded):
        limiter.acquire()


def test_a_client_goes_by_no_wall_clock() -> None:
    package = Path(__file__).parents[4] / "idempotency" / "locks"
    for module in package.rglob("*.py"):
        text = module.read_text()
        assert "time.time(" not in text, module
        # a server's time may be written as one
        assert not re.search(r"datetime\.(now|utcnow|today)", text), module
