"""Parts of a keyed call that both modes share. Knows no doors and no templates."""

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idempotency import ledger
from idempotency.conf import Config
from idempotency.conf import config as settings
from idempotency.errors import InProgress, KeyReused, Problem, ResultExpired
from idempotency.modes import Mode
from idempotency.observability import logs, metrics
from idempotency.redis import arrivals, marker, subscriber
from idempotency.request import keys, outline
from idempotency.request.principal import ANONYMOUS, Visit
from idempotency.response import encryption
from idempotency.response.answers import UNCERTAIN_STATUS, StoredResponse, Verdict, verdict_on

OWNER_MAX, REQUEST_ID_MAX = 128, 64  # characters that the ledger stores
POLL_SECONDS = 0.25  # between two looks while Redis, which would wake us, is away
# how each refusal by the key is counted
_REFUSALS: dict[type[Problem], str] = {KeyReused: "reused", InProgress: "in_progress", ResultExpired: "expired"}


class Exchange(ABC):
    """`KeyedCall` in progress; `AtomicExchange` and `PhasedExchange` are its strategies.

    Attributes:
        outcome: how it ended, as the metrics name it; empty while it has not.
        is_handling: its handler runs now: a keyed handler that it calls with the same request joins this call.
        on_replay: called with an answer that is a replay; may return another in its place.

    Args:
        request: whose session is kept in step with the answer; None for a call without HTTP.
        config: settings of this call; None: of the project.
        lifetime: seconds that its answer is replayed; None: as long as any.
    """

    mode: Mode
    resumed = False
    was_uncertain = False
    outcome = ""
    subject = ""
    is_handling = False
    on_replay: Callable[[HttpResponseBase], HttpResponseBase | None] | None = None
    _database: Any = None  # of this thread, where `begin` opens a transaction
    _may_store, _shows_form = True, False  # as its handler said; the form of its intent again
    _lifetime: float | None = None

    def __init__(
        self,
        *,
        scope: str,
        key: str,
        content: bytes,
        request_id: str,
        handler: str = "",
        redact: tuple[str, ...] = (),
        request: HttpRequest | None = None,
        config: Config | None = None,
        lifetime: float | None = None,
    ) -> None:
        self.key_digest = keys.digest_of(scope=scope, key=key)
        self._content = content
        self._config = settings() if config is None else config
        self._visit = Visit(request)
        self._address = "" if request is None else request.META.get("REMOTE_ADDR") or ""
        self._redact = (*self._config.redact, *redact)
        # copies of a view's call wait as long as it would; one of `once` says itself how long
        self._has_waiters = self._config.wait_seconds > 0 or request is None
        self._lifetime = self._usual_lifetime = lifetime
        self._identity = ledger.Identity(
            scope=scope,
            key=key,
            fingerprint=keys.fingerprint(content),
            owner=_here.owner,
            request_id=request_id[:REQUEST_ID_MAX],
            digest=self.key_digest,
            handler=handler,
        )
        # once, before anything is done: afterwards nothing may fail that only concerns Redis
        self._marker = marker.key_of(self.key_digest) if self._config.uses_redis else ""
        logs.bind(key_digest=self.key_digest)

    @abstractmethod
    def begin(self) -> StoredResponse | None:
        """Claim the key, or raise its problem. None: run the handler, then call `finish` or `fail`."""

    def look(self) -> StoredResponse | None:
        """Return the stored answer of this very call, without a claim; None where there is none."""
        entry = self._find()
        if entry is None or entry.answer is None or entry.answer.status == UNCERTAIN_STATUS:
            return None
        is_copy = keys.matches(entry.fingerprint, self._identity.fingerprint, self._content)
        return self._replay_entry(entry) if is_copy else None

    @abstractmethod
    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Store the handler's answer and return it; or that of a duplicate that was faster."""

    @abstractmethod
    def fail(self) -> StoredResponse | None:
        """Undo what a failed handler did; return the stored answer, if the key has one."""

    def repeat(self, error: BaseException, rewind: Callable[[], bool]) -> bool:
        """Begin again after a conflict, unless `rewind` returns False; False: the call has failed."""
        return False

    def about(self, kind: str, identifier: object) -> None:
        name = getattr(identifier, "hex", None) or str(identifier)
        self.subject = outline.printable(f"{kind}:{name}", 96)
        logs.bind(subject=self.subject)

    def set_lifetime(self, seconds: float) -> None:
        self._lifetime = seconds

    def do_not_store(self) -> None:
        self._may_store = False

    def offer_again(self, keys_of_intent: str) -> None:
        """Note that the answer shows an intent's form again, so that the intent is not done."""
        self._shows_form = self._shows_form or self._identity.key.startswith(keys_of_intent)

    def join(self, *, mode: Mode, redact: tuple[str, ...]) -> None:
        """Take in a handler that the running one calls. Raises RuntimeError: its mode is another."""
        if self.mode is not mode:
            raise RuntimeError(f"A keyed handler ({self.mode}) calls one of another mode ({mode}).")
        self._redact = (*self._redact, *redact)

    def log_arrival(self) -> None:
        """Add this call to the request log of its key, when its outcome is known."""
        arrivals.note(
            marker=self._marker,
            digest=self.key_digest,
            outcome=self.outcome,
            request_id=self._identity.request_id,
            address=self._address,
            content=self._content,
        )

    def _count(self, outcome: str) -> None:
        self.outcome = outcome
        _labelled(metrics.requests, self.mode, outcome).inc()

    def _count_failure(self) -> None:
        """Count a failed call; one that ended with a problem of its key has been counted as that."""
        if self.outcome not in _REFUSALS.values():
            self._count("failed")

    def _count_conflict(self, kind: str) -> None:
        self.outcome = kind
        metrics.conflicts.labels(kind).inc()

    def _refused(self, problem: Problem) -> Problem:
        """Count a call that gets no answer, and return its problem to raise."""
        self._count_conflict(_REFUSALS[type(problem)])
        return problem

    def _find(self) -> ledger.Entry | None:
        return ledger.find(scope=self._identity.scope, key=self._identity.key)

    def _refuse_reuse(self, stored_fingerprint: bytes, answer: StoredResponse | None = None) -> None:
        if not keys.matches(stored_fingerprint, self._identity.fingerprint, self._content):
            raise self._refused(KeyReused(answer.headers.get("Location") if answer else None))

    def _verdict_on(self, response: HttpResponseBase) -> Verdict:
        return verdict_on(response.status_code) if self._may_store else Verdict.NOT_STORED

    def _stored(self, response: HttpResponseBase) -> StoredResponse:
        if self._identity.scope.startswith(f"{ANONYMOUS} "):
            self._visit.note(self.key_digest)
        return StoredResponse.of(
            response,
            max_bytes=self._config.max_response_bytes,
            redact=self._redact,
            lifetime_seconds=self._lifetime,
            is_open=self._shows_form and response.status_code == 200,
        )

    def _sealed(self, answer: StoredResponse) -> StoredResponse:
        """Encrypt for the ledger, where the settings say so."""
        return encryption.seal(answer, digest=self.key_digest) if self._config.body_keys else answer

    def _show(self, answer: StoredResponse) -> None:
        """Let Redis answer replays; only after the commit."""
        marker.finish(
            self._marker,
            fingerprint=self._identity.fingerprint,
            answer=answer,
            ttl_seconds=min(self._config.result_seconds, self._config.body_seconds, answer.lifetime_seconds),
            wait=self.mode is not Mode.ATOMIC,
            wake=self._has_waiters,
        )

    def _replay_found(self, found: marker.Finished) -> StoredResponse:
        self._refuse_reuse(found.fingerprint, found.answer)
        return self._replay(found.answer, source="redis")

    def _replay_entry(self, entry: ledger.Entry | None) -> StoredResponse:
        """Return the answer of a finished entry and put it in Redis for later replays; else 409."""
        if entry is not None:
            self._refuse_reuse(entry.fingerprint, entry.answer)
        if entry is None or entry.answer is None:
            raise self._refused(InProgress())
        seconds = min(self._config.result_seconds, entry.fresh_seconds)
        answer = encryption.unseal(entry.answer, digest=self.key_digest)
        marker.finish(self._marker, fingerprint=entry.fingerprint, answer=answer, ttl_seconds=seconds)
        return self._replay(answer, source="ledger")

    def _replay(self, answer: StoredResponse, *, source: str) -> StoredResponse:
        if answer.body is None:
            raise self._refused(ResultExpired(answer.headers.get("Location")))
        self._visit.look_again()
        _labelled(metrics.replays, source).inc()
        self._count("replayed")
        return answer

    def _turns(self) -> Iterator[None]:
        """Yield once, and within `WAIT_SECONDS` again whenever the duplicate has ended.

        A message can be lost and a process can die without one, so there is a turn after each life of a marker
        as well.
        """
        deadline = time.monotonic() + self._config.wait_seconds
        yield
        if self._config.wait_seconds == 0:
            return
        with subscriber.listen(self._marker) as bell:
            yield  # the duplicate may have ended before we were subscribed
            while (left := deadline - time.monotonic()) > 0:
                if bell is None:
                    time.sleep(min(left, POLL_SECONDS))
                else:
                    bell.wait(min(left, self._config.marker_seconds))
                yield


@cache
def _labelled(metric: Any, *labels: str) -> Any:
    return metric.labels(*labels)


class _Here(threading.local):
    """Name of each thread, which asks the system once and not at each call."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"[:OWNER_MAX]


_here = _Here()
os.register_at_fork(after_in_child=_here.begin)  # a forked child is another process
