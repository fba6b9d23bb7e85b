"""Counts for the admin's charts: added up in memory, and written to the ledger's database now and then.

A request pays for one addition and no SQL. What a killed process had not written is lost; the charts are for
looking, the ledger is for money.
"""

import contextlib
import threading
from collections import Counter

from django.db import DatabaseError, connection

from idempotency.conf import config
from idempotency.models import LedgerTally
from idempotency.observability.background import Worker

_TABLE = LedgerTally._meta.db_table

_ADD = f"""
INSERT INTO {_TABLE} AS tally (hour, what, count)
SELECT date_trunc('hour', statement_timestamp()), what, count
FROM unnest(%s::text[], %s::bigint[]) AS t(what, count)
ORDER BY what
ON CONFLICT (hour, what) DO UPDATE SET count = tally.count + excluded.count
"""  # noqa: S608  our own table's name


class Tallies:
    """The counts of one process that are not written yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._writer: Worker | None = None

    def add(self, what: str) -> None:
        """Count one; the first one after a writing starts the clock for the next."""
        seconds = config().tally_seconds
        if seconds is None:
            return
        with self._lock:
            self._counts[what] += 1
            if self._writer is None or not self._writer.is_alive():  # a fork takes it along, but not as a thread
                self._writer = Worker("idempotency-tallies", lambda worker: self._write_apart(worker, seconds))
                with contextlib.suppress(RuntimeError):  # no thread to be had: the next request asks again
                    self._writer.start()

    def write(self) -> None:
        """Add the counts to the table.

        Raises:
            Exception: whatever the database raises; the counts are there for the next time.
        """
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._writer = None
        if not counts:
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute(_ADD, [list(counts), list(counts.values())])
        except BaseException:
            with self._lock:
                self._counts.update(counts)
            raise

    def _write_apart(self, worker: Worker, seconds: float) -> None:
        """After `seconds`, on the worker's own connection."""
        if worker.stopping.wait(seconds):
            return
        try:
            self.write()
        except DatabaseError as error:
            worker.met("Counts of keyed requests could not be written (%s); next time.", type(error).__name__)
        finally:
            connection.close()


tallies = Tallies()
