"""Face of threads: operations block. A process has a subscriber and a watchdog a server."""

import logging
from functools import partial
from typing import Any, TypeVar

from idempotency.locks.engine import holder
from idempotency.locks.engine.hub import Hub, lock_error, refuse_no_redis
from idempotency.locks.engine.steps import (
    Ask,
    Finish,
    Listen,
    On,
    SendNowait,
    Step,
    Steps,
    Threaded,
    answer,
    perform,
)
from idempotency.observability.background import Watchdog, Worker
from idempotency.redis import fastpath
from idempotency.redis.availability import interruption
from idempotency.redis.connection import Connections
from idempotency.redis.fastpath import FAILURES
from idempotency.redis.mailbox import Bell
from idempotency.redis.subscriber import subscriber_of

T = TypeVar("T")


class ThreadHub(Hub):
    """Hub whose subscriber and watchdog are daemon threads, started when they are needed."""

    bell = Bell

    def __init__(self, client: Any) -> None:
        self._connections = Connections(client)
        self.subscriber = subscriber_of(client)  # of the process: markers use it too
        super().__init__(client, self.subscriber.mailbox)
        self._watchdog = Watchdog(
            "locks-watchdog", next_due=self.holds.next_due, work=self._renew, ended=self.holds.unwatched
        )

    def answer(self, step: Step) -> Any:
        match step:
            case Ask():
                return self._ask(step)
            case Listen(seconds):
                return self.subscriber.listen(seconds)
            case Finish(steps):
                return perform(steps, self.answer)
            case On(face, steps):
                return face.run(steps)
            case _:
                return answer(step)

    def _ask(self, step: Ask) -> Any:
        """Run a script on an idle connection and return its reply; None without waiting."""
        connection = self._connections.take()
        try:
            if isinstance(step, SendNowait):
                return step.script.send_nowait(connection, step.keys, step.arguments, then=step.then)
            return step.script.run(connection, step.keys, step.arguments, step.seconds)
        except FAILURES as error:
            if interrupt := interruption(error):
                raise interrupt from None
            raise lock_error(error) from error
        finally:
            self._connections.give_back(connection)

    def stir(self) -> None:
        self._watchdog.stir()

    def _renew(self, worker: Worker) -> None:
        perform(self.renew(partial(worker.met, level=logging.WARNING)), self.answer)


def hub_of(client: Any) -> ThreadHub:
    """Return the process's hub for `client` and for every other client of the same pool."""
    subscriber = subscriber_of(client)
    if subscriber.hub is None:
        with subscriber.changing:  # one hub: the mail leads to the holds of the one that was made last
            subscriber.hub = subscriber.hub or ThreadHub(client)
    return subscriber.hub  # type: ignore[no-any-return]


class OnThreads(Threaded):
    client: Any = None
    _cached: ThreadHub | None = None

    def hub(self) -> ThreadHub:
        """Return the hub that performs its steps; another one after a fork."""
        if self._cached is None or self._cached.process != holder.process:
            if self.client is None:
                refuse_no_redis()
            self._cached = hub_of(fastpath.client() if self.client is None else self.client)
        return self._cached

    def run(self, steps: Steps[T]) -> T:
        return perform(steps, self.hub().answer)
