"""Phased mode: for handlers that call the outside world, where no transaction may be open.

The claim is committed first, under a lease and a fencing number. The handler opens short transactions of its
own around its calls and must be resumable: after a crash, or after it answered 202 because the outcome outside
is not known, a retry with the same key runs it again (`resumed` is then True) under the next fencing number.
Completion is a compare-and-set on that number. An entry whose handler ran is never deleted before it finished.
"""

from django.http.response import HttpResponseBase

from idempotency import ledger, marker
from idempotency.errors import in_progress
from idempotency.exchange import Exchange
from idempotency.models import State
from idempotency.response import REPLAYED_HEADER, StoredResponse, Verdict, rendered, verdict_on

UNCERTAIN_STATUS = 202


class PhasedExchange(Exchange):
    """See the module. Raises RuntimeError where a transaction is open."""

    _run: ledger.Run | None = None
    _was_uncertain = False

    def begin(self) -> StoredResponse | None:
        found = marker.look(self.key_digest)
        if isinstance(found, marker.Finished):
            return self._replay_found(found)
        self._run = ledger.claim_phased(self._identity, lease_seconds=self._config.lease_seconds)
        if self._run is not None:
            return None
        for _ in self._polls():
            if (entry := self._find()) is None:
                continue
            self._same_request(entry.fingerprint)
            self.resumed = True
            if entry.state == State.FINISHED:
                if entry.response_status != UNCERTAIN_STATUS:
                    return self._replay_entry(entry)
                self._was_uncertain = True  # a 202 is replayed with the resource's current state
                return None
            self._run = ledger.take_over(entry, self._identity, lease_seconds=self._config.lease_seconds)
            if self._run is not None:
                self._was_uncertain = entry.state == State.UNCERTAIN
                return None
        raise in_progress()

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        response = rendered(response)
        if self._was_uncertain and 200 <= response.status_code < 300:
            resolved = response.status_code != UNCERTAIN_STATUS
            response.status_code = UNCERTAIN_STATUS
            response.headers[REPLAYED_HEADER] = "true"
        else:
            resolved = response.status_code != UNCERTAIN_STATUS
        if self._run is None:
            return response
        return self._settle(self._run, response, resolved=resolved)

    def fail(self) -> StoredResponse | None:
        if self._run is not None:
            ledger.drop_lease(self._run)
        return None

    def _settle(self, run: ledger.Run, response: HttpResponseBase, *, resolved: bool) -> HttpResponseBase:
        verdict = verdict_on(response.status_code)
        if verdict is Verdict.NOT_STORED:
            # a 5xx may have left something outside: keep the entry. Any other 4xx says that nothing was done.
            (ledger.drop_lease if response.status_code >= 500 else ledger.forget)(run)
            return response
        if not resolved:
            settled = ledger.suspend(run)
        else:
            answer = StoredResponse.of(response, max_bytes=self._store_limit())
            settled = ledger.complete_phased(run, answer)
            if settled and response.status_code != UNCERTAIN_STATUS:
                marker.finish(self.key_digest, fingerprint=self._identity.fingerprint, answer=answer)
        if settled:
            return response
        # the lease was lost: a retry took over, and what it says counts
        return self._replay_entry(self._find()).replay()
