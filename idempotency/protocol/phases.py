"""Phased mode: for handlers that call the outside world, where no transaction may be open.

The claim is committed first, under a lease and a fencing number; the lease is renewed while the process lives. The
handler opens short transactions of its own around its calls and must be resumable: after a crash, or after it
answered 202 because the outcome outside is not known, a retry with the same key runs it again (`resumed` is then
True) under the next fencing number.
Completion is a compare-and-set on that number. An entry whose handler ran is never deleted before it finished,
or before all that the handler may have done is known (`idempotency.maintenance.resolve_known`).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.http.response import HttpResponseBase

from idempotency import ledger
from idempotency.errors import InProgress, ResultExpired
from idempotency.models import State
from idempotency.modes import Mode
from idempotency.names import schema
from idempotency.observability import logs
from idempotency.postgres import home
from idempotency.protocol import heartbeat
from idempotency.protocol.exchange import OWNER_MAX, Exchange
from idempotency.redis import marker
from idempotency.response.answers import UNCERTAIN_STATUS, StoredResponse, Verdict, mark_replay, verdict_on


class LeaseLost(Exception):
    """Error of a run that another one took over from."""


class PhasedExchange(Exchange):
    """Strategy of the phased mode. Raises RuntimeError where a transaction is open.

    Attributes:
        run: the right to execute, None where only the current state is shown again.
        recovery_point, recovery_data: progress of an earlier run (`idempotency.protocol.recovery`).
        is_finished: this exchange has finished the entry.
    """

    mode = Mode.PHASED

    run: ledger.Run | None = None
    recovery_point = ""
    recovery_data: Mapping[str, Any] = {}
    is_finished = False
    _has_request = True
    _lease: heartbeat.Lease | None = None

    @classmethod
    def of_entry(
        cls, entry: ledger.Entry, *, asker: str, request_id: str, redact: tuple[str, ...] = ()
    ) -> "PhasedExchange":
        """Open an exchange without a request, to `resume` this entry.

        Its `finish` raises `LeaseLost` where another run took over: no caller waits for that run's answer.

        Args:
            asker: prefix of its owner.
        """
        exchange = cls(
            scope=entry.scope,
            key=entry.key,
            content=b"",
            request_id=request_id,
            handler=entry.handler,
            redact=redact,
        )
        owner = f"{asker}{exchange._identity.owner}"[:OWNER_MAX]
        exchange._identity = replace(exchange._identity, fingerprint=entry.fingerprint, owner=owner)
        exchange._has_request = False
        if entry.subject:
            exchange.subject = entry.subject
            logs.bind(subject=entry.subject)
        return exchange

    @property
    def lease_seconds(self) -> float:
        """Length of its run's lease, and of each renewal."""
        return self._config.lease_seconds

    @property
    def handler(self) -> str:
        """Name of the `Phases` that run under this exchange; empty for any other handler."""
        return self._identity.handler

    def about(self, kind: str, identifier: object) -> None:
        super().about(kind, identifier)
        lease = self._lease
        if lease is None or self.handler:  # each recovery point stores it
            return
        if lease.schema == schema():  # in another tenant's ledger its number may be of another call
            ledger.note_subject(lease.run, subject=self.subject)

    def begin(self) -> StoredResponse | None:
        home.refuse_open_transaction()
        found = marker.look(self._marker)
        if isinstance(found, marker.Finished):
            return self._replay_found(found)
        for _ in self._turns():
            run = ledger.claim_phased(self._identity, lease_seconds=self.lease_seconds)
            if run is not None:
                self._keep(run)
                return None
            if (entry := self._find()) is None:
                continue  # the first run was just removed: it did nothing
            self._refuse_reuse(entry.fingerprint, entry.answer)
            # a handler of steps must not run without a claim, not even to show the current state
            if entry.answer is not None and (entry.handler or entry.answer.status != UNCERTAIN_STATUS):
                return self._replay_entry(entry)
            if self.resume(entry):
                return None
        raise self._refused(InProgress())

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        self._lease = None
        if self.is_finished:
            return response
        is_known = response.status_code != UNCERTAIN_STATUS
        self._repeat_202(response)
        if self.run is None:
            # a 202 is replayed with the current state, which is stored nowhere
            not_stored = verdict_on(response.status_code) is Verdict.NOT_STORED
            self._count("not_stored" if not_stored else "replayed")
            return response
        return self._store(self.run, response, is_known=is_known)

    def fail(self) -> StoredResponse | None:
        self._lease = None
        self._count_failure()
        if self.run is None or self.is_finished:
            return None
        try:
            ledger.drop_lease(self.run)
        except (DatabaseError, InterfaceError):  # a time limit has interrupted a query, say
            home.connection().close()
            ledger.drop_lease(self.run)
        marker.ring(self._marker)
        if self._has_request:
            with suppress(ResultExpired):  # too large to be stored
                return self.look()  # the last step may have committed its answer, and a hook failed after it
        return None

    def complete(self, response: HttpResponseBase) -> bool:
        """Finish the entry in the step's transaction. False: another run has it, so roll back."""
        if self.run is None:
            return True
        self._repeat_202(response)
        answer = self._sealed(self._stored(response))
        return ledger.complete_phased(self.run, answer, subject=self.subject)

    def committed(self, response: HttpResponseBase) -> None:
        """Publish the answer; the transaction of `complete` was committed."""
        self.is_finished = True
        self._count("executed")
        self._show(self._stored(response))

    def resume(self, entry: ledger.Entry) -> bool:
        """Go on with an entry: show its state again, or take it over. False: another run has it."""
        if entry.answer is not None:
            # a 202 is replayed with the resource's current state
            self.was_uncertain = True
        else:
            run = ledger.take_over(
                entry,
                owner=self._identity.owner,
                request_id=self._identity.request_id,
                lease_seconds=self.lease_seconds,
            )
            if run is None:
                return False
            self.was_uncertain = entry.state == State.UNCERTAIN or ledger.was_uncertain(entry.entry_id)
            self._keep(run)  # last: nobody drops the lease of a call that could not begin
        self.resumed = True
        self.recovery_point, self.recovery_data = entry.recovery_point, entry.recovery_data
        return True

    def _keep(self, run: ledger.Run) -> None:
        """Execute under this run, whose lease is renewed until the call ends."""
        self.run = run
        self._lease = heartbeat.keep(run, seconds=self.lease_seconds)

    def _repeat_202(self, response: HttpResponseBase) -> None:
        """Answer 202 again to a caller who heard 202, with the current state."""
        if self.was_uncertain and 200 <= response.status_code < 300:
            response.status_code = UNCERTAIN_STATUS
            mark_replay(response)

    def _store(self, run: ledger.Run, response: HttpResponseBase, *, is_known: bool) -> HttpResponseBase:
        home.refuse_open_transaction()  # left by the handler, or of another call beside it: it may be rolled back
        verdict = self._verdict_on(response)
        if verdict is Verdict.NOT_STORED:
            if 400 <= response.status_code < 500:  # this alone says that nothing was done outside
                ledger.forget(run)
            else:
                ledger.drop_lease(run)
            self._count("not_stored")
        elif not is_known:
            if not ledger.suspend(run, subject=self.subject):
                return self._overtaken()
            self._count("uncertain")
        else:
            answer = self._stored(response)
            self.is_finished = ledger.complete_phased(run, self._sealed(answer), subject=self.subject)
            if not self.is_finished:
                return self._overtaken()
            self._count("executed" if verdict is Verdict.EFFECT else "refused")
            if answer.status != UNCERTAIN_STATUS:
                self._show(answer)
                return response
        marker.ring(self._marker)
        return response

    def _overtaken(self) -> HttpResponseBase:
        """Return the answer of the retry that took over the lease."""
        self._count_conflict("lost_lease")
        if not self._has_request:
            raise LeaseLost
        return self._replay_entry(self._find()).replay()
