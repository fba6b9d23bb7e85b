"""Call without a key, answered as a keyed one is but remembered nowhere."""

from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from django.db import transaction
from django.http.response import HttpResponseBase

from idempotency.conf import Config
from idempotency.modes import Mode
from idempotency.postgres import home
from idempotency.protocol.atomic import refuse_lost_writes
from idempotency.protocol.exchange import Exchange
from idempotency.response.answers import StoredResponse, Verdict

HEADER = "Idempotency"  # of the answers while ``IDEMPOTENCY["ENABLED"]`` is False


class UnkeyedExchange(Exchange):
    """Strategy of a call that its view lets through without a key, and of safe methods.

    An atomic handler has its transaction all the same, and a refusal undoes its writes: what a handler may rely on
    does not hang on its caller.
    """

    recovery_point = ""
    recovery_data: Mapping[str, Any] = {}
    _atomic: transaction.Atomic | None = None

    def __init__(self, *, mode: Mode, config: Config, handler: str = "", digest: str = "") -> None:
        self.mode, self.handler = mode, handler
        self.key_digest = digest or token_hex(32)  # a handler may number its calls by it: no two may be equal
        self._config = config
        self._redact = ()

    def look(self) -> StoredResponse | None:
        return None

    def begin(self) -> StoredResponse | None:
        if self.mode is Mode.ATOMIC:
            self._database = transaction.get_connection(self._config.database)
            self._atomic = transaction.atomic(self._config.database)
            self._atomic.__enter__()
        return None

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        verdict = self._verdict_on(response)
        if verdict is Verdict.NOT_STORED and self._atomic is not None:
            refuse_lost_writes(self._database, response.status_code)
        self._leave(commit=verdict is Verdict.EFFECT)
        self._count("unkeyed")
        if not self._config.enabled:
            response.headers[HEADER] = "disabled"
        return response

    def complete(self, response: HttpResponseBase) -> bool:
        return True

    def committed(self, response: HttpResponseBase) -> None:
        """Do nothing: no answer is published."""

    def fail(self) -> StoredResponse | None:
        self._count("failed")
        self._leave(commit=False)
        return None

    def offer_again(self, keys_of_intent: str) -> None:
        """Do nothing: no key is spent."""

    def log_arrival(self) -> None:
        """Do nothing: no key has a log."""

    def _leave(self, *, commit: bool) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is None or (not commit and home.close_if_left_behind(self._database)):
            return
        if not commit:
            transaction.set_rollback(True, self._config.database)
        atomic.__exit__(None, None, None)
