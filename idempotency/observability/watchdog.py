"""Watchdog: a thread that works when something is due, and else ends after a while."""

import threading
import time
from collections.abc import Callable

from idempotency.observability.background import Worker

LINGER_SECONDS = 10.0  # of a thread with nothing to do: to start one takes longer than to wake it


class Watchdog:
    """Thread that is started when it is needed, such as for all renewals of a process.

    Args:
        name: of the thread.
        next_due: returns when to work next, in seconds of `time.monotonic`; infinite if never.
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
            if due_at == float("inf"):
                if self._stirred.wait(LINGER_SECONDS):
                    continue
                with self._guard:
                    if not self._stirred.is_set():
                        self._worker = None
                        return
            elif not self._stirred.wait(max(0.0, due_at - time.monotonic())):
                self._work(worker)
