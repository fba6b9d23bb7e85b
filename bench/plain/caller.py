"""Who calls, from a header: authentication that costs no SQL, so that the figures show the key's cost alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest


@dataclass(frozen=True, slots=True)
class Caller:
    """As much of a user as a keyed view asks for."""

    pk: int
    is_authenticated: bool = True
    is_active: bool = True


class CallerMiddleware:
    """`X-User: 7` becomes `request.user`. Sync and async, as Django hands it its successor."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        request.user = Caller(pk=int(request.headers.get("X-User", "1")))  # type: ignore[assignment]
        return self.get_response(request)
