"""Atomic mode: ledger row, business writes and stored answer are one transaction.

A crash at any point leaves all of it or nothing. With the marker claimed in Redis the row is inserted last, with
its answer (one statement more than the bare handler); with Redis away it is claimed first, so that twins wait
for each other at the unique index. Either way a duplicate insert loses, its whole transaction rolls back, and
the caller gets the winner's stored answer.
"""

from django.db import transaction
from django.http.response import HttpResponseBase

from idempotency import ledger, marker
from idempotency.errors import in_progress
from idempotency.exchange import Exchange
from idempotency.response import StoredResponse, Verdict, rendered, verdict_on

# how long a twin waits at the unique index when Redis cannot tell it that the first is still running
LEAST_INDEX_WAIT_SECONDS = 0.05


class AtomicExchange(Exchange):
    """See the module. Opens its own outermost transaction; raises RuntimeError where one is open already."""

    _atomic: transaction.Atomic | None = None
    _claimed: marker.Claimed | None = None
    _entry_id: int | None = None

    def begin(self) -> StoredResponse | None:
        found = marker.claim(
            self.key_digest,
            fingerprint=self._identity.fingerprint,
            owner=self._identity.owner,
            ttl_seconds=self._config.marker_seconds,
        )
        if isinstance(found, marker.Finished):
            return self._replay_found(found)
        if isinstance(found, marker.Running):
            return self._join(found)
        self._atomic = transaction.atomic(durable=True)
        self._atomic.__enter__()
        if isinstance(found, marker.Claimed):
            self._claimed = found
            return None
        return self._claim_first()

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        response = rendered(response)
        verdict = verdict_on(response.status_code)
        if verdict is Verdict.NOT_STORED:
            replay = self.fail()
            return response if replay is None else replay.replay()
        answer = StoredResponse.of(response, max_bytes=self._store_limit())
        if not self._settle(verdict, answer):
            replay = self.fail() or self._replay_entry(self._find())
            return replay.replay()
        marker.finish(self.key_digest, fingerprint=self._identity.fingerprint, answer=answer)
        return response

    def fail(self) -> StoredResponse | None:
        self._leave(commit=False)
        if self._claimed is None:
            return None  # claimed first: had the key an answer, `begin` would have given it
        marker.release(self.key_digest, self._claimed)
        self._claimed = None
        # Redis may have forgotten a finished answer; then this run was the repeat, whatever became of it
        entry = self._find()
        return None if entry is None else self._replay_entry(entry)

    def _join(self, found: marker.Running) -> StoredResponse:
        """A twin is running, says Redis. The ledger may know better; else wait as long as configured."""
        self._same_request(found.fingerprint)
        for _ in self._polls():
            entry = self._find()
            if entry is not None:
                return self._replay_entry(entry)
        raise in_progress()

    def _claim_first(self) -> StoredResponse | None:
        wait_seconds = max(self._config.wait_seconds, LEAST_INDEX_WAIT_SECONDS)
        try:
            self._entry_id = ledger.claim(self._identity, wait_seconds=wait_seconds)
        except ledger.TwinRunning:
            self._leave(commit=False)
            raise in_progress() from None
        except BaseException:
            self._leave(commit=False)
            raise
        if self._entry_id is not None:
            return None
        self._leave(commit=False)
        return self._replay_entry(self._find())

    def _settle(self, verdict: Verdict, answer: StoredResponse) -> bool:
        """Commit; False: a twin's entry is there and nothing of this run remains."""
        if verdict is Verdict.REFUSAL:
            self._leave(commit=False)
            with transaction.atomic(durable=True):
                return ledger.record(self._identity, answer)
        if self._entry_id is not None:
            ledger.complete(self._entry_id, answer)
        elif not ledger.record(self._identity, answer):
            self._leave(commit=False)
            return False
        self._leave(commit=True)
        return True

    def _leave(self, *, commit: bool) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is None:
            return
        if not commit:
            transaction.set_rollback(True)
        atomic.__exit__(None, None, None)
