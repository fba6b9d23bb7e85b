"""`IdempotencyMiddleware`: turns what a keyed view raises into the answers of docs/contract.md, 1.

The check of the key itself happens in `@idempotent`, further in, because authentication, throttling and
validation come before the key and must be asked again before a replay.
"""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from idempotency.errors import problem_response
from idempotency.protocol.problems import problem_of

__all__ = ["IdempotencyMiddleware", "problem_of"]


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
