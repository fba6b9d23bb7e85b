"""Time-out for a whole call; httpx's are for one wait each, which a slow drip keeps.

Before each wait the sockets of our pools ask how much of the call's time is left. A call runs in one thread, so
its deadline is a context variable.
"""

import math
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

KEEPALIVE_SECONDS = 5.0
CONNECTIONS_MAX = 20

_ends: ContextVar[float] = ContextVar("ends", default=math.inf)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Bound the socket waits of a call to `seconds` in all; None sets no deadline."""
    former = _ends.set(time.monotonic() + (math.inf if seconds is None else seconds))
    try:
        yield
    finally:
        _ends.reset(former)


class BoundedTransport(httpx.HTTPTransport):
    """httpx's transport on a pool whose sockets obey `within`.

    Not bounded: the name's lookup, and each further address of a name. Nothing is sent by then.
    """

    def __init__(self, *, authorities: ssl.SSLContext) -> None:
        # httpx takes no backend for the pool that it makes, so this one is made for it
        self._pool = httpcore.ConnectionPool(
            ssl_context=authorities,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=_Network(),
        )


class _Network(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left, local_address, socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    """Return the time for one wait: its own, at most the rest of the call's; or raise `late`."""
    left = _ends.get() - time.monotonic()
    if left <= 0:
        raise late("the call's time is over")
    if left == math.inf:
        return timeout
    return left if timeout is None else min(left, timeout)
