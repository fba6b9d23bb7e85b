"""Atomic mode: ledger row, business writes and stored answer are one transaction.

A crash at any point leaves all of it or nothing. The row is inserted last, with its answer, in the round trip of
the commit. A duplicate insert loses, its whole transaction rolls back, and the caller gets the winner's stored
answer. The marker in Redis keeps concurrent duplicates apart; with Redis away, an advisory lock does.
"""

from collections.abc import Callable
from contextlib import suppress

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http.response import HttpResponseBase

from idempotency import ledger
from idempotency.errors import InProgress
from idempotency.modes import Mode
from idempotency.observability import metrics
from idempotency.postgres import home, transactions
from idempotency.postgres.availability import conflict
from idempotency.protocol.exchange import Exchange
from idempotency.redis import marker
from idempotency.response.answers import StoredResponse, Verdict


class AtomicExchange(Exchange):
    """Strategy of the atomic mode. Raises RuntimeError inside another transaction."""

    mode = Mode.ATOMIC

    _atomic: transaction.Atomic | None = None
    _claimed: marker.Claimed | None = None
    _repeats = 0
    _committing = False  # from here on the commit may have happened, even if an error is all we see of it

    def begin(self) -> StoredResponse | None:
        for _ in self._turns():
            found = marker.claim(
                self._marker,
                fingerprint=self._identity.fingerprint,
                owner=self._identity.owner,
                ttl_seconds=self._config.marker_seconds,
            )
            if isinstance(found, marker.Finished):
                return self._replay_found(found)
            if found is None:
                return self._begin_without_redis()
            if isinstance(found, marker.Claimed):
                self._claimed = found
                self._enter()
                return None
            self._refuse_reuse(found.fingerprint)
            if (entry := self._find()) is not None:  # a marker may be stale, or lie; the ledger decides
                return self._replay_entry(entry)
        raise self._refused(InProgress())

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        verdict = self._verdict_on(response)
        if verdict is Verdict.NOT_STORED:
            refuse_lost_writes(self._database, response.status_code)
            self._count("not_stored")
            replay = self._undo()
            return response if replay is None else replay.replay()
        answer = self._stored(response)
        self._committing = True
        if not self._commit(verdict, self._sealed(answer)):
            self._committing = False
            self._count_conflict("lost_race")
            replay = self._undo() or self._replay_instead(self._find())
            return replay.replay()
        self._show(answer)
        self._count("executed" if verdict is Verdict.EFFECT else "refused")
        return response

    def repeat(self, error: BaseException, rewind: Callable[[], bool]) -> bool:
        reason = conflict(error)
        if not reason or self._repeats >= self._config.repeats or not rewind():
            return False
        self._leave(commit=False)
        with suppress(DatabaseError, InterfaceError):  # it is away now: the call has failed by its own error
            if self._begin_again():
                self._repeats += 1
                metrics.repeats.labels(reason).inc()
                return True
        return False

    def _begin_again(self) -> bool:
        """Open a new transaction; False where the key has an answer, or a duplicate holds it."""
        if self._committing and self._find() is not None:
            return False  # the commit was done, and a hook after it failed
        self._committing = False
        # drop what the run that was undone said of its answer
        self._may_store, self._shows_form, self._lifetime = True, False, self._usual_lifetime
        self._visit.undo()
        self._enter()
        # without a marker, the lock of the key went with the first transaction
        return self._claimed is not None or ledger.hold(self._identity) is True

    def fail(self) -> StoredResponse | None:
        self._count_failure()
        return self._undo()

    def _undo(self) -> StoredResponse | None:
        self._leave(commit=False)
        if self._claimed is None and not self._committing:
            return None  # without a marker the ledger was asked in the beginning
        try:
            # Redis may have lost a finished answer; then this run was the repeat, however it ended
            entry = self._find()
        finally:
            self._release()
        return None if entry is None else self._replay_instead(entry)

    def _replay_instead(self, entry: ledger.Entry | None) -> StoredResponse:
        """Return the stored answer in place of this run's, which may have failed after its commit."""
        if not self._committing:
            self._visit.undo()
        return self._replay_entry(entry)

    def _release(self) -> None:
        """Let the next duplicate claim the marker."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            marker.release(self._marker, claimed)

    def _begin_without_redis(self) -> StoredResponse | None:
        """Claim the key by a lock of the database; None: it is ours, and the transaction is open."""
        found = self._hold()
        if found is False and self._config.wait_seconds > 0:
            if not ledger.await_duplicate(self._identity, wait_seconds=self._config.wait_seconds):
                raise self._refused(InProgress())
            found = self._hold()
        return None if found is True else self._replay_entry(found or self._find())

    def _hold(self) -> ledger.Entry | bool:
        """Hold the key in a transaction, as `ledger.hold`; it is left unless the key is ours."""
        found: ledger.Entry | bool = False
        self._enter()
        try:
            found = ledger.hold(self._identity)
        finally:
            if found is not True:
                self._leave(commit=False)
        return found

    def _enter(self) -> None:
        self._database = transaction.get_connection(self._config.database)
        atomic = transaction.atomic(self._config.database, durable=True)
        try:
            if not self._database.autocommit:  # or there is no connection yet
                home.refuse_open_transaction()
            atomic.__enter__()
        except BaseException:  # the database is away, say
            self._release()
            raise
        self._atomic = atomic
        transactions.defer(self._database)

    def _commit(self, verdict: Verdict, answer: StoredResponse) -> bool:
        """Commit; False: a duplicate's entry is there and nothing of this run remains."""
        if verdict is Verdict.REFUSAL:
            self._leave(commit=False)
            return self._record_alone(answer)
        self._visit.save()
        if not ledger.record(self._identity, answer, subject=self.subject):
            self._leave(commit=False)
            return False
        self._leave(commit=True)
        return True

    def _record_alone(self, answer: StoredResponse) -> bool:
        if transaction.get_autocommit(self._config.database):  # one statement commits by itself, without a BEGIN
            try:
                return ledger.record(self._identity, answer, subject=self.subject)
            except (OperationalError, InterfaceError):
                # the ledger says over another connection if it committed
                home.connection().close_if_unusable_or_obsolete()
                raise
        with transaction.atomic(self._config.database, durable=True):
            recorded = ledger.record(self._identity, answer, subject=self.subject)
            transaction.set_rollback(not recorded, self._config.database)
        return recorded

    def _leave(self, *, commit: bool) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is None or (not commit and home.close_if_left_behind(self._database)):
            return
        transactions.stop(self._database)
        if not commit:
            self._database.set_rollback(True)
        atomic.__exit__(None, None, None)


def refuse_lost_writes(database: BaseDatabaseWrapper, status: int) -> None:
    """Raise RuntimeError where do_not_store() would undo what the answer says was written."""
    if status >= 400 or database.savepoint_ids or database.needs_rollback or database.vendor != "postgresql":
        return  # savepoints are of a `TestCase`, where it cannot be known
    if database.connection.info.transaction_status == transactions.FAILED:  # undone by the handler's own doing
        return
    with database.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NULL")
        if cursor.fetchone()[0]:
            return
    raise RuntimeError(
        f"A keyed handler answered {status}, and do_not_store() would undo what it wrote. Answer with a "
        "refusal, or write call.set_lifetime(0) in its place."
    )
