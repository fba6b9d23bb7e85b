"""Background threads of a process: started, named, stopped and joined in one place.

A worker's failure is caught, counted and logged in one line. All workers end before the process closes its
streams; a forked child has none of its parent's.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable

from idempotency.observability import metrics

log = logging.getLogger(__name__)

NEVER = float("inf")
LINGER_SECONDS = 10.0  # of a watchdog with nothing to do: to start a thread takes longer than to wake it
STOP_SECONDS = 2.0  # for all together at the end of the process; one that is still connecting logs nothing

_workers: set["Worker"] = set()


class Worker(threading.Thread):
    """Daemon thread that runs until its work ends or it is stopped.

    Args:
        name: of the thread, in logs and in the metric.
        work: called with the worker; returns soon once `stopping` is set.
        wake: called by another thread when `stopping` is set, to end a wait of `work`.

    Attributes:
        stopping: an event, to wait for in place of sleeping.
    """

    def __init__(
        self, name: str, work: "Callable[[Worker], None]", *, wake: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self._work = work
        self._wake = wake

    def start(self) -> None:
        """Start. Raises RuntimeError: the system has no thread to give."""
        _workers.add(self)
        try:
            super().start()
        except RuntimeError:
            _workers.discard(self)
            raise

    def run(self) -> None:
        try:
            self._work(self)
        except Exception as error:
            self.met("%s ended by %s: %s", self.name, type(error).__name__, error, level=logging.ERROR)
        finally:
            _workers.discard(self)

    def met(self, message: str, *arguments: object, level: int = logging.INFO) -> None:
        """Count a failure and log it, unless the worker is being stopped."""
        if not self.stopping.is_set():
            metrics.background_failures.labels(self.name).inc()
            log.log(level, message, *arguments)

    def stop(self) -> None:
        self.stopping.set()
        self._wake()


class Watchdog:
    """Thread that is started when it is needed, such as for all renewals of a process.

    Args:
        next_due: returns when to work next, in seconds of `time.monotonic`, or `NEVER`.
        work: called with the worker when that time has come.
        ended: called when the thread ends; the next one begins with `stir`.
    """

    def __init__(
        self,
        name: str,
        *,
        next_due: Callable[[], float],
        work: Callable[[Worker], None],
        ended: Callable[[], None],
    ) -> None:
        self._name = name
        self._next_due = next_due
        self._work = work
        self._ended = ended
        self._guard = threading.Lock()
        self._stirred = threading.Event()
        self._worker: Worker | None = None

    def stir(self) -> None:
        """Have the thread look again; RuntimeError if the system has no thread to give."""
        with self._guard:
            self._stirred.set()
            if self._worker is None or not self._worker.is_alive():
                worker = Worker(self._name, self._watch, wake=self._stirred.set)
                worker.start()  # which may fail, and must be tried again then
                self._worker = worker

    def _watch(self, worker: Worker) -> None:
        try:
            self._work_when_due(worker)
        finally:
            self._ended()

    def _work_when_due(self, worker: Worker) -> None:
        while True:
            self._stirred.clear()
            if worker.stopping.is_set():
                return
            due_at = self._next_due()
            if due_at == NEVER:
                if self._stirred.wait(LINGER_SECONDS):
                    continue
                with self._guard:
                    if not self._stirred.is_set():
                        self._worker = None
                        return
            elif not self._stirred.wait(max(0.0, due_at - time.monotonic())):
                self._work(worker)


def stop(*, seconds: float = STOP_SECONDS) -> list[str]:
    """Stop every worker. Return the names of those that still run after `seconds`."""
    workers = list(_workers)
    deadline = time.monotonic() + seconds
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    return [worker.name for worker in workers if worker.is_alive()]


atexit.register(stop)
os.register_at_fork(after_in_child=_workers.clear)
