"""Middleware, the outermost one: the process dies after the commit and before the answer, where the caller says so."""

import os
import signal
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse


def die_when_asked(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        answer = get_response(request)
        if "X-Die" in request.headers:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return middleware
