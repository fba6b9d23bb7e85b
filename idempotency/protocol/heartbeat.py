"""Heartbeat of a process: renews the leases of the phased calls that run in it.

A dead process renews nothing, so a retry takes over when the lease is over. Renewal never decides between two
runs: the fencing number does.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from weakref import WeakSet

from idempotency import ledger
from idempotency.names import schema
from idempotency.observability.background import NEVER, Watchdog, Worker
from idempotency.postgres import home

log = logging.getLogger(__name__)

RENEW_AFTER = 1 / 3  # of a lease
TICK_SECONDS = 1.0  # renewals due within a tick go in one statement; after a failure the next try


@dataclass(slots=True, eq=False, weakref_slot=True)
class Lease:
    """Lease of a run of this process, renewed for as long as the object exists.

    Attributes:
        seconds: length of a renewal.
        schema: of the run's ledger (`names.schema`).
        due_at: of the next renewal, in seconds of `time.monotonic`; infinite once it is lost.
    """

    run: ledger.Run
    seconds: float
    schema: str
    due_at: float

    @property
    def tick_seconds(self) -> float:
        """Time that does not matter to this lease."""
        return min(TICK_SECONDS, self.seconds / 10)


class Heartbeat:
    """Leases of a process, and the thread that renews them."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin with no lease: a forked child runs none of its parent's calls."""
        self._guard = threading.RLock()  # a finalizer may run in any line, and end a call
        self._leases: WeakSet[Lease] = WeakSet()
        self._looks_at = NEVER
        self._watchdog = Watchdog(
            "idempotency-heartbeat", next_due=self._next_due, work=self._renew, ended=self._unwatched
        )

    def keep(self, run: ledger.Run, *, seconds: float) -> Lease:
        """Renew the lease of `run` until the caller drops what this returns, or the process ends."""
        lease = Lease(run, seconds, schema(), time.monotonic() + seconds * RENEW_AFTER)
        with self._guard:
            self._leases.add(lease)
            is_early = lease.due_at < self._looks_at
            if is_early:
                self._looks_at = lease.due_at
        if is_early:
            try:
                self._watchdog.stir()
            except RuntimeError as error:  # there are too many threads
                self._unwatched()
                log.warning("A lease is not renewed, and ends after %s s: %s", seconds, error)
        return lease

    def _next_due(self) -> float:
        with self._guard:
            self._looks_at = min((lease.due_at for lease in self._leases), default=NEVER)
            return self._looks_at

    def _unwatched(self) -> None:
        self._looks_at = NEVER

    def _renew(self, worker: Worker) -> None:
        now = time.monotonic()
        by_schema: dict[str, list[Lease]] = {}
        with self._guard:
            for lease in self._leases:
                if lease.due_at <= now + lease.tick_seconds:
                    by_schema.setdefault(lease.schema, []).append(lease)
        for name, leases in by_schema.items():
            try:
                found = _renewed(name, leases)
            except Exception as error:  # of any kind: the handlers go on, and so does the next tick
                worker.met("%d leases could not be renewed: %s", len(leases), error, level=logging.WARNING)
                found = dict.fromkeys((lease.run for lease in leases), False)
            for lease in leases:
                is_renewed = found.get(lease.run)
                if is_renewed is None:  # it is lost
                    lease.due_at = NEVER
                else:
                    lease.due_at = now + (lease.seconds * RENEW_AFTER if is_renewed else lease.tick_seconds)


def _renewed(name: str, leases: list[Lease]) -> dict[ledger.Run, bool]:
    """Renew one schema's leases over a connection that is closed after each beat."""
    database = home.connection()
    try:
        if name:
            database.set_schema(name)  # of django-tenants
        return ledger.renew_leases({lease.run: lease.seconds for lease in leases})
    finally:
        database.close()


_heartbeat = Heartbeat()
keep = _heartbeat.keep
os.register_at_fork(after_in_child=_heartbeat.begin)
