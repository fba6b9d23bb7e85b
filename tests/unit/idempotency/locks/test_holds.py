"""The bookkeeping of what a process holds, where threads are in each other's way."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from idempotency import locks
from idempotency.locks.engine import holds as holds_module
from idempotency.locks.engine.holder import current
from idempotency.locks.engine.holds import CONFIRM_SECONDS, Hold, Holds
from idempotency.locks.engine.hub import Hub
from idempotency.locks.engine.places import FRONT, _look_again_seconds
from idempotency.locks.engine.steps import Ask, BesideTheLoop, Listen, Steps, Wait, Work
from idempotency.locks.mutex import Mutex
from idempotency.redis.mailbox import Bell, Mailbox


class Ending(Hold):
    """Another thread ends its renewals right after each look at it."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "due_at":
            self.due_at = None
        return found


def granted(kind: type[Hold] = Hold, *, confirmed: bool = False, due_in: float = CONFIRM_SECONDS) -> Hold:
    now = time.monotonic()
    return kind(
        key="lock",
        owner="me",
        token=1,
        lease_seconds=30.0,
        ends_at=now + 1,
        holder=current(),
        renew_until=now + 300,
        due_at=now + due_in,
        confirmed=confirmed,
    )


def heard() -> tuple[Holds, Hold, list[str]]:
    """A hold with a listener, among those of a process, and what the listener hears."""
    ends: list[str] = []
    holds, hold = Holds(stir=lambda: None), granted(confirmed=True)
    hold.notify = lambda end, _: ends.append(end)
    holds.add(hold)
    return holds, hold, ends


def test_a_listener_hears_of_an_end_once_although_a_renewal_was_on_its_way() -> None:
    holds, hold, ends = heard()
    holds.ended(hold.token, f"{hold.key} {hold.owner}")
    hold.prolonged(time.monotonic() + 30, at=time.monotonic() - 30)  # asked before that
    holds.due(within_seconds=1.0)
    assert ends == ["lost"]


def test_no_hold_is_forgotten_before_its_listener_has_heard() -> None:
    holds, hold, ends = heard()
    hold.holder = replace(hold.holder, alive=lambda: False)
    hold.ends_at = 0.0
    holds.forget_ended()  # as others do that are added, while the watchdog waits for the server
    holds.due(within_seconds=1.0)
    holds.forget_ended()
    assert (ends, holds.get(hold.key, hold.owner)) == (["lost"], None)


def test_renewals_that_end_while_they_are_looked_at_disturb_nobody() -> None:
    """The watchdog is one thread for all locks: it must not end with one of them."""
    for look in (
        lambda holds, hold: holds.add(hold),
        lambda holds, hold: (holds._holds.update({(hold.key, "me"): hold}), holds.next_due()),
        lambda holds, hold: (holds._holds.update({(hold.key, "me"): hold}), holds.due(within_seconds=1.0)),
    ):
        holds = Holds(stir=lambda: None)
        look(holds, granted(Ending, confirmed=True, due_in=0.0))
        assert holds.next_due() == float("inf")
        assert holds.due(within_seconds=1.0) == []


def test_the_watchdog_of_a_lock_that_goes_from_hand_to_hand_is_stirred_once() -> None:
    stirred: list[None] = []
    holds = Holds(stir=lambda: stirred.append(None))
    for _ in range(3):
        hold = granted()
        holds.add(hold)
        holds.remove(hold)
        assert holds.next_due() <= time.monotonic() + CONFIRM_SECONDS  # it looks once more, and that is in time
    assert len(stirred) == 1
    assert holds.next_due() == float("inf")
    holds.add(granted())
    assert len(stirred) == 2


class Waiting:
    """The steps of an acquire at a hub without a server, whose caller answers them."""

    queued = (0, 0, 2_000_000, 1_000_000)

    def __init__(self, wait_seconds: float | None = None) -> None:
        class Alone(Hub):
            def bell(self) -> Bell:
                return Bell()

            def stir(self) -> None: ...

        class LockAlone(Mutex):
            def hub(self) -> Hub:
                return hub

        self.hub = hub = Alone(None, Mailbox())
        self.steps: Steps[Any] = Mutex.acquire.steps(LockAlone("thing"), wait_seconds=wait_seconds)
        self.first = next(self.steps)

    def asks(self) -> str:
        """The request of its next question."""
        asked = self.steps.send(True)
        assert isinstance(asked, Ask)
        return str(asked.arguments[1])

    def waits(self) -> Bell:
        """The bell that it waits for, having heard that it is queued."""
        waited = self.steps.send(self.queued)
        assert isinstance(waited, Wait)
        return waited.bell


def test_who_was_too_late_for_a_grant_waits_for_the_next_one() -> None:
    waiting = Waiting()
    request, bell = waiting.asks(), waiting.waits()
    waiting.hub.mail.deliver(f"{request} 7 1")
    assert bell.wait(0)
    request, bell = waiting.asks(), waiting.waits()
    assert not bell.wait(0)
    waiting.hub.mail.deliver(request)
    assert bell.wait(0)


def test_a_loss_while_nobody_has_hung_a_bell_is_heard_all_the_same() -> None:
    """Between its answer and its bell, a waiter must not miss that it should look."""
    waiting = Waiting()
    waiting.asks()
    waiting.hub.mail.ring_all()
    assert waiting.waits().wait(0)
    waiting.asks()
    assert not waiting.waits().wait(0)  # it has looked


def test_the_subscriber_is_not_waited_for_beyond_the_time_that_there_is() -> None:
    first = Waiting(wait_seconds=0.1).first
    assert isinstance(first, Listen)
    assert first.seconds <= 0.1


def test_a_hold_that_nobody_could_renew_is_not_kept() -> None:
    failing = [True]

    def stir() -> None:
        if failing:
            raise RuntimeError("can't start new thread")

    holds = Holds(stir=stir)
    with pytest.raises(RuntimeError):
        holds.add(granted())
    assert holds.get("lock", "me") is None
    failing.clear()
    hold = granted()
    holds.add(hold)
    assert holds.get("lock", "me") is hold


def test_leases_that_nobody_comes_to_release_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds_module, "SWEEP_AT", 3)
    holds = Holds(stir=lambda: None)
    for number in range(20):
        hold = granted()
        hold.key, hold.due_at = f"lock {number}", None
        hold.ends_at -= holds_module.LOSS_SECONDS + 60
        holds.add(hold)
    assert len(holds._holds) <= 5
    lost = granted()
    lost.ends_at -= 60
    holds.add(lost)
    holds.forget_ended()
    assert holds.get("lock", "me") is lost  # its holder can still hear of it


def test_who_stands_behind_the_front_looks_soon_and_a_thousand_do_not_look_at_once() -> None:
    assert _look_again_seconds(FRONT, 30.0) <= 1.2
    assert sum(1 / _look_again_seconds(position, 30.0) for position in range(FRONT, 1000)) < 260


def test_nothing_overtakes_work_however_often_its_caller_is_cancelled() -> None:
    done: list[str] = []
    began, ends = threading.Event(), threading.Event()

    def ask() -> None:
        began.set()
        ends.wait(30)
        done.append("asked")

    def steps() -> Steps[None]:
        try:
            yield Work(ask)
        finally:
            yield Work(lambda: done.append("undone"))

    async def story() -> None:
        task = asyncio.create_task(BesideTheLoop().run(steps()))
        await asyncio.to_thread(began.wait, 30)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)  # it hears that
        ends.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert done == ["asked", "undone"]


@pytest.mark.parametrize("kind", ["Lock", "Semaphore", "CountDownLatch", "Topic"])
def test_without_redis_the_setting_is_named(kind: str, settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "REDIS": None}
    settings.IDEMPOTENCY.pop("REDIS_ASYNC_CLIENT", None)
    with pytest.raises(ImproperlyConfigured, match=r"IDEMPOTENCY\['REDIS'\], which names none.*client="):
        getattr(locks, kind)("thing").hub()
