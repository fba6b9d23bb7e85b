"""`IdempotencyMiddleware`: turns what a keyed view raises into the answers of docs/contract.md, 1.

The check of the key itself happens in `@idempotent`, further in, because authentication, throttling and
validation come before the key and must be asked again before a replay.
"""

import logging
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse

from idempotency.errors import Problem, answer_sealed, payload_too_large, problem_response
from idempotency.postgres.availability import outage
from idempotency.response.vault import VaultError

log = logging.getLogger("idempotency")


class IdempotencyMiddleware:
    """Sync and async. Place it last, after authentication and sessions."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Problems as problem documents; a database that is away as 503 with Retry-After."""
        problem = problem_of(exception)
        return None if problem is None else problem_response(problem, request)


def problem_of(exception: BaseException | None) -> Problem | None:
    """The problem that an exception means for the caller; None if it is a fault of the program."""
    if isinstance(exception, Problem):
        return exception
    if (away := outage(exception)) is not None:
        return away
    if isinstance(exception, RequestDataTooBig):
        return payload_too_large()
    if isinstance(exception, VaultError):
        log.error("A replay is 503: %s", exception)
        return answer_sealed()
    return None
