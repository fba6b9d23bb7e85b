"""One keyed request, from claim to answer: what both modes share.

    exchange = open_exchange(request, mode=…)
    replay = exchange.begin()            # claims the key; or gives the stored answer; or raises a Problem
    if replay is None:
        response = exchange.finish(handler())    # stores the answer; or gives the winner's instead

`idempotency.views` and `idempotency.drf` are the only callers. Nothing here knows of headers of the answer,
templates or serializers.
"""

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idempotency import fingerprint, keys, ledger, marker, tokens
from idempotency.conf import Config, config
from idempotency.errors import in_progress, key_invalid, key_reused, result_expired, token_unknown
from idempotency.models import LedgerEntry, State
from idempotency.principal import principal_of
from idempotency.response import StoredResponse

POLL_SECONDS = 0.05


class Exchange(ABC):
    """Base of `AtomicExchange` and `PhasedExchange`.

    Attributes:
        key_digest: 64 hexadecimal characters that name (scope, key); safe to log and to derive ids from.
        resumed: True if a handler before this one ran for the same key (phased only): it may have committed
            something, and its caller may have heard 202.
    """

    resumed = False

    def __init__(self, *, scope: str, key: str, content: bytes, request_id: str) -> None:
        self.key_digest = keys.digest_of(scope=scope, key=key)
        self._content = content
        self._config: Config = config()
        self._identity = ledger.Identity(
            scope=scope,
            key=key,
            fingerprint=fingerprint.fingerprint(content),
            owner=_owner(),
            request_id=request_id,
        )

    @abstractmethod
    def begin(self) -> StoredResponse | None:
        """Claim the key. None: run the handler, then call `finish` or `fail`.

        Raises:
            Problem: the key's own problems, see `idempotency.errors`.
        """

    @abstractmethod
    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Settle with the handler's answer, which is returned; or the winner's replay if a twin was faster."""

    @abstractmethod
    def fail(self) -> StoredResponse | None:
        """The handler raised: undo what can be undone. The stored answer, should the key turn out to have one."""

    def _find(self) -> LedgerEntry | None:
        return ledger.find(scope=self._identity.scope, key=self._identity.key)

    def _same_request(self, stored_fingerprint: "bytes | memoryview[int]") -> None:
        if not fingerprint.matches(bytes(stored_fingerprint), self._content):
            raise key_reused()

    def _replay_found(self, found: marker.Finished) -> StoredResponse:
        self._same_request(found.fingerprint)
        return _with_body(found.answer)

    def _replay_entry(self, entry: LedgerEntry | None) -> StoredResponse:
        """The answer of a finished entry, which from now on Redis can give too; else 409, it is still running."""
        if entry is None:
            raise in_progress()
        self._same_request(entry.fingerprint)
        if entry.state != State.FINISHED or entry.response_status is None:
            raise in_progress()
        body = None if entry.response_body is None else bytes(entry.response_body)
        answer = StoredResponse(status=entry.response_status, headers=entry.response_headers, body=body)
        marker.finish(self.key_digest, fingerprint=bytes(entry.fingerprint), answer=answer)
        return _with_body(answer)

    def _store_limit(self) -> int:
        return self._config.max_response_bytes

    def _polls(self) -> Iterator[None]:
        """At once, then again and again until `WAIT_SECONDS` are over."""
        deadline = time.monotonic() + self._config.wait_seconds
        yield
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            yield


def _with_body(answer: StoredResponse) -> StoredResponse:
    if answer.body is None:
        raise result_expired(answer.headers.get("Location"))
    return answer


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"[:128]


def identify(request: HttpRequest, *, caller: Any) -> tuple[str, str]:
    """(scope, key) of a request: its Idempotency-Token (header or form field), else its Idempotency-Key.

    Args:
        request: the Django request.
        caller: the request that authentication has seen (DRF's, where there is one).

    Raises:
        Problem: key missing or invalid, token unknown.
    """
    token = request.headers.get("Idempotency-Token") or request.POST.get("idempotency_token")
    header = request.headers.get("Idempotency-Key")
    if token is None:
        key = keys.parse_key(header)
        route = request.resolver_match.route if request.resolver_match else request.path
        method = request.method or ""
        return keys.scope_of(principal=principal_of(caller), method=method, route=route), key
    if header is not None:
        raise key_invalid("send an Idempotency-Key or an Idempotency-Token, not both")
    principal = principal_of(caller)
    taken = tokens.read(token, principal=principal)
    scope = keys.token_scope_of(principal=principal)
    if taken.expired and ledger.find(scope=scope, key=taken.key) is None:
        raise token_unknown()
    return scope, taken.key


def run(exchange: Exchange, handler: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """The protocol, for a handler that runs in this thread."""
    replay = exchange.begin()
    if replay is not None:
        return replay.replay()
    try:
        return exchange.finish(handler())
    except BaseException:
        replay = exchange.fail()
        if replay is None:
            raise
        return replay.replay()
