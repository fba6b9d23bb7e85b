"""The caller from a header: authentication without SQL, so that the figures show the cost of the key alone."""

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse


@dataclass(frozen=True, slots=True)
class Caller:
    """The part of a user that a keyed view needs."""

    pk: int
    is_authenticated: bool = True
    is_active: bool = True


def caller_middleware(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Turn `X-User: 7` into `request.user`."""

    def middleware(request: HttpRequest) -> HttpResponse:
        request.user = Caller(pk=int(request.headers.get("X-User", "1")))  # type: ignore[assignment]
        return get_response(request)

    return middleware
