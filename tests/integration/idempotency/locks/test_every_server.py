"""What each class promises, over Redis, Valkey, a Cluster and Sentinel, on threads and on asyncio."""

import pytest

from idempotency.locks import LockLost, LockTimeout, NotHeld, RateExceeded, UpgradeRefused
from tests.integration.idempotency.locks.actors import until
from tests.integration.idempotency.locks.conftest import Bench

MUTEXES = ["Lock", "FairLock"]


@pytest.mark.parametrize("kind", MUTEXES)
class TestMutex:
    def test_one_holder_and_only_he_releases(self, bench: Bench, kind: str) -> None:
        lock = bench.make(kind)
        first, second = bench.actors(2)
        assert first.do(lock.acquire) is True
        assert first.do(lambda: lock.held) is True
        assert second.do(lambda: lock.held) is False
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
        with pytest.raises(NotHeld):
            second.do(lock.release)
        first.do(lock.release)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is True
        with pytest.raises(NotHeld):
            first.do(lock.release)

    def test_reentrant_and_tokens_grow(self, bench: Bench, kind: str) -> None:
        lock, same = bench.make(kind), bench.make(kind)
        first, second = bench.actors(2)
        assert first.do(lock.acquire)
        token = first.do(lambda: lock.token)
        assert first.do(same.acquire)
        assert first.do(lambda: same.token) == token
        first.do(lock.release)
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is False
        first.do(same.release)
        assert second.do(lock.acquire)
        assert second.do(lambda: lock.token) > token
        assert first.do(lambda: lock.token) is None

    def test_a_waiter_is_next_in_the_order_of_arrival(self, bench: Bench, kind: str) -> None:
        lock = bench.make(kind)
        holder, *waiters = bench.actors(4)
        assert holder.do(lock.acquire)
        answers = []
        for count, waiter in enumerate(waiters, start=1):
            answers.append(waiter.begin(lock.acquire))
            bench.waits(count)
        for waiter, answer in zip([holder, *waiters], [*answers, None], strict=True):
            waiter.do(lock.release)
            if answer is not None:
                assert answer.result(30) is True
                assert sum(each.done() for each in answers) == answers.index(answer) + 1

    def test_who_gives_up_leaves_the_queue(self, bench: Bench, kind: str) -> None:
        lock = bench.make(kind)
        holder, waiter = bench.actors(2)
        assert holder.do(lock.acquire)
        assert waiter.do(lambda: lock.acquire(wait_seconds=0.05)) is False
        assert bench.queue() == 0

    def test_a_lease_of_ones_own_ends_by_itself(self, bench: Bench, kind: str) -> None:
        lock = bench.make(kind)
        first, second = bench.actors(2)
        assert first.do(lambda: lock.acquire(lease_seconds=0.05))
        assert second.do(lambda: lock.acquire(wait_seconds=20)) is True
        assert first.do(lambda: lock.lost) is True
        with pytest.raises(LockLost):
            first.do(lock.release)

    def test_forgotten_by_the_server_it_is_lost_and_tokens_still_grow(self, bench: Bench, kind: str) -> None:
        lock = bench.make(kind)
        first, second = bench.actors(2)
        assert first.do(lock.acquire)
        token = first.do(lambda: lock.token)
        bench.forget()
        assert second.do(lambda: lock.acquire(wait_seconds=0)) is True
        assert second.do(lambda: lock.token) > token
        with pytest.raises(LockLost):
            first.do(lock.release)


class TestReadWrite:
    def test_readers_share_and_a_writer_excludes(self, bench: Bench) -> None:
        lock = bench.make("ReadWriteLock")
        one, two, writer = bench.actors(3)
        assert one.do(lock.read.acquire)
        assert two.do(lock.read.acquire)
        assert writer.do(lambda: lock.write.acquire(wait_seconds=0)) is False
        one.do(lock.read.release)
        two.do(lock.read.release)
        assert writer.do(lambda: lock.write.acquire(wait_seconds=0)) is True
        assert one.do(lambda: lock.read.acquire(wait_seconds=0)) is False

    def test_a_waiting_writer_is_not_passed_by_readers(self, bench: Bench) -> None:
        lock = bench.make("ReadWriteLock")
        reader, writer, *late = bench.actors(4)
        assert reader.do(lock.read.acquire)
        writing = writer.begin(lock.write.acquire)
        bench.waits(1, kind="readwrite")
        reading = []
        for count, each in enumerate(late, start=2):
            reading.append(each.begin(lock.read.acquire))
            bench.waits(count, kind="readwrite")
        reader.do(lock.read.release)
        assert writing.result(30) is True
        assert not any(answer.done() for answer in reading)
        writer.do(lock.write.release)
        assert [answer.result(30) for answer in reading] == [True, True]

    def test_a_writer_may_read_and_go_on_reading(self, bench: Bench) -> None:
        lock = bench.make("ReadWriteLock")
        writer, reader = bench.actors(2)
        assert writer.do(lock.write.acquire)
        assert writer.do(lock.read.acquire)
        assert reader.do(lambda: lock.read.acquire(wait_seconds=0)) is False
        writer.do(lock.write.release)
        assert writer.do(lambda: (lock.write.held, lock.read.held)) == (False, True)
        assert reader.do(lambda: lock.read.acquire(wait_seconds=0)) is True
        with pytest.raises(NotHeld):
            writer.do(lock.write.release)

    def test_a_reader_is_refused_to_write(self, bench: Bench) -> None:
        lock = bench.make("ReadWriteLock")
        reader = bench.actor()
        assert reader.do(lock.read.acquire)
        with pytest.raises(UpgradeRefused):
            reader.do(lock.write.acquire)
        assert reader.do(lambda: lock.read.held) is True


class TestSemaphore:
    def test_no_more_than_its_permits(self, bench: Bench) -> None:
        semaphore = bench.make("Semaphore", permits=3)
        one, two = bench.actors(2)
        assert one.do(lambda: semaphore.acquire(2))
        assert one.do(semaphore.acquire)
        assert one.do(lambda: semaphore.held) == 3
        assert two.do(lambda: semaphore.acquire(wait_seconds=0)) is False
        waiting = two.begin(lambda: semaphore.acquire(2))
        bench.waits(1, kind="semaphore")
        one.do(semaphore.release)
        assert not waiting.done()
        one.do(semaphore.release)
        assert waiting.result(30) is True
        with pytest.raises(NotHeld):
            one.do(semaphore.release)

    def test_expirable_permits_end_and_anyone_gives_them_back(self, bench: Bench) -> None:
        semaphore = bench.make("PermitExpirableSemaphore", permits=1)
        one, two = bench.actors(2)
        first = one.do(lambda: semaphore.acquire(lease_seconds=0.05))
        second = two.do(lambda: semaphore.acquire(lease_seconds=60, wait_seconds=20))
        assert second not in {None, first}
        with pytest.raises(NotHeld):
            one.do(lambda: semaphore.release(first))
        two.do(lambda: semaphore.prolong(second, lease_seconds=90))
        assert one.do(lambda: semaphore.acquire(lease_seconds=1, wait_seconds=0)) is None
        one.do(lambda: semaphore.release(second))
        for useless in (second, "nonsense"):
            with pytest.raises(NotHeld):
                two.do(lambda useless=useless: semaphore.prolong(useless, lease_seconds=9))
        assert one.do(lambda: semaphore.acquire(lease_seconds=1, wait_seconds=0)) is not None

    def test_a_waiter_for_an_expirable_permit_keeps_it_for_its_lease(self, bench: Bench) -> None:
        semaphore = bench.make("PermitExpirableSemaphore", permits=1)
        one, two = bench.actors(2)
        first = one.do(lambda: semaphore.acquire(lease_seconds=60))
        waiting = two.begin(lambda: semaphore.acquire(lease_seconds=60))
        bench.waits(1, kind="permits")
        one.do(lambda: semaphore.release(first))
        permit = waiting.result(30)
        _, token = permit.rsplit("@", 1)
        owner = permit.rsplit("@", 1)[0]
        with pytest.raises(NotHeld):
            two.do(lambda: semaphore.release(f"{owner}@{int(token) + 1}"))
        two.do(lambda: semaphore.release(permit))


class TestOthers:
    def test_latch(self, bench: Bench) -> None:
        latch = bench.make("CountDownLatch")
        one, two = bench.actors(2)
        assert one.do(lambda: latch.wait(wait_seconds=0)) is True
        assert one.do(lambda: latch.open(2)) is True
        assert two.do(lambda: latch.open(5)) is False
        assert one.do(lambda: latch.wait(wait_seconds=0)) is False
        waiting = one.begin(latch.wait)
        assert two.do(latch.count_down) == 1
        assert two.do(latch.count) == 1
        assert not waiting.done()
        assert two.do(latch.count_down) == 0
        assert waiting.result(30) is True
        assert two.do(latch.count_down) == 0
        assert two.do(latch.delete) is False
        assert one.do(lambda: latch.open(2)) is True
        waiting = one.begin(latch.wait)
        until(lambda: bench.plain.exists(latch._keys[1]), "it waits")
        assert two.do(latch.delete) is True
        assert waiting.result(30) is True
        assert (two.do(latch.count), two.do(latch.count_down)) == (0, 0)
        assert one.do(lambda: latch.open(2)) is True

    def test_rate(self, bench: Bench) -> None:
        limiter = bench.make("RateLimiter", permits=3, interval_seconds=60, permits_per_client=2)
        actor = bench.actor()
        actor.do(lambda: limiter.acquire(2, caller="one"))
        with pytest.raises(RateExceeded) as refused:
            actor.do(lambda: limiter.acquire(caller="one"))
        assert 30 < refused.value.retry_after_seconds <= 60
        actor.do(lambda: limiter.acquire(caller="two"))
        with pytest.raises(RateExceeded):
            actor.do(lambda: limiter.acquire(caller="three"))
        actor.do(lambda: limiter.give_back(2, caller="one"))
        actor.do(lambda: limiter.acquire(2, caller="one"))
        with pytest.raises(RateExceeded):
            actor.do(lambda: limiter.acquire(caller="three"))

    def test_rate_that_is_waited_for(self, bench: Bench) -> None:
        limiter = bench.make("RateLimiter", permits=1, interval_seconds=0.05)
        actor = bench.actor()
        for seconds in (10, None, 10, None):
            actor.do(lambda seconds=seconds: limiter.acquire(wait_seconds=seconds))

    def test_a_member_is_new_once(self, bench: Bench) -> None:
        seen = bench.make("ExpiringSet", ttl_seconds=60)
        actor = bench.actor()
        assert [actor.do(lambda each=each: seen.add(each)) for each in ("a", "b", "a")] == [True, True, False]
        again: list[str] = []
        for each in ("c", "d", "d", "c"):  # told, with the script unknown to the line and known
            actor.do(lambda each=each: seen.note(each, known=lambda: again.append(each)))
        assert [actor.do(lambda each=each: seen.add(each)) for each in ("c", "d")] == [False, False]
        assert again == ["d", "c"]
        short = bench.make("ExpiringSet", "short", ttl_seconds=0.01)
        assert actor.do(lambda: short.add("a")) is True
        _until_new(actor, short)

    def test_several_as_one(self, bench: Bench) -> None:
        one, two = bench.actors(2)
        both = bench.locks.MultiLock.of(["b", "a", "b"], client=bench.client)
        assert [lock.name for lock in both.locks] == ["a", "b"]
        single = bench.make("Lock", "b")
        assert one.do(single.acquire)
        assert two.do(lambda: both.acquire(wait_seconds=0)) is False
        assert one.do(lambda: bench.make("Lock", "a").acquire(wait_seconds=0)) is True
        one.do(bench.make("Lock", "a").release)
        waiting = two.begin(both.acquire)
        bench.waits(1, "b")
        one.do(single.release)
        assert waiting.result(30) is True
        assert two.do(lambda: both.held) is True
        assert one.do(lambda: bench.make("Lock", "a").acquire(wait_seconds=0)) is False
        two.do(both.release)
        assert one.do(lambda: both.acquire(wait_seconds=0)) is True


def _until_new(actor: object, short: object) -> None:
    until(lambda: actor.do(lambda: short.add("a")))


def test_the_time_is_over_for_with(one: Bench) -> None:
    lock = one.make("Lock", wait_seconds=0)
    assert one.actor().do(lock.acquire)
    with pytest.raises(LockTimeout, match="'thing' was not free within 0 s"):
        one.actor().do(lock.enter)
