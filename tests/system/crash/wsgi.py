"""The project's WSGI application that dies on request, between any two things it does.

`X-Fault-At: n` kills the worker (SIGKILL) at the n-th boundary of that request; every answer says in
`X-Fault-Count` how many boundaries it crossed. Boundaries: before each SQL statement, before and after each
commit, before each Redis command, before and after each call to a provider.
"""

import os
import signal
from collections.abc import Callable, Iterable
from typing import Any

os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"

import httpx
import redis
from django.core.wsgi import get_wsgi_application
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.urls import resolve


class Boundaries:
    """Counts them for the request at hand; the worker has one thread."""

    def __init__(self) -> None:
        self.crossed = 0
        self.fatal = 0

    def begin(self, fatal: int) -> None:
        self.crossed, self.fatal = 0, fatal

    def cross(self) -> None:
        self.crossed += 1
        if self.crossed == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


boundaries = Boundaries()


def crossing(original: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """`original` with a boundary before it, and after it where that is a moment of its own."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        boundaries.cross()
        result = original(*args, **kwargs)
        if after:
            boundaries.cross()
        return result

    return wrapper


def watch_statements(connection: Any, **kwargs: Any) -> None:
    def wrapper(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        boundaries.cross()
        return execute(sql, params, many, context)

    connection.execute_wrappers.append(wrapper)


connection_created.connect(watch_statements, weak=False)
BaseDatabaseWrapper._commit = crossing(BaseDatabaseWrapper._commit, after=True)
redis.Redis.execute_command = crossing(redis.Redis.execute_command, after=False)  # type: ignore[method-assign]
httpx.Client.send = crossing(httpx.Client.send, after=True)  # type: ignore[method-assign]

_application = get_wsgi_application()
resolve("/api/v1/orders")  # in the master, once: a worker that takes a dead one's place need not import the views


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    boundaries.begin(int(environ.get("HTTP_X_FAULT_AT", "0")))

    def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        return start_response(status, [*headers, ("X-Fault-Count", str(boundaries.crossed))], *rest)

    return _application(environ, start)
