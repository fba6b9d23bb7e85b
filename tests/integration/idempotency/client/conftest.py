"""A real HTTP server that answers by a script, and both clients that send to it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from idempotency.client import AsyncIdempotentTransport, IdempotentTransport, Keys

# what the server does instead of answering
HANG_UP = "close the connection without an answer"
STAY_SILENT = "never answer"
BREAK_OFF = "close the connection in the middle of the answer's body"


@dataclass(frozen=True)
class Says:
    """An answer of the script."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


IN_PROGRESS = Says(
    409,
    {"Content-Type": "application/problem+json", "Retry-After": "1"},
    b'{"status": 409, "code": "idempotency_in_progress"}',
)
CREATED = Says(201, {"Location": "/orders/1"}, b'{"id": 1}')


@dataclass(frozen=True)
class Received:
    """A request as it came in."""

    method: str
    path: str
    key: str | None
    token: str | None
    body: bytes


class Server(ThreadingHTTPServer):
    """Answers request n with the nth item of `script`; keeps what it `received`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Says | str] = []
        self.received: list[Received] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def keys(self) -> list[str | None]:
        """The key of each request."""
        return [received.key for received in self.received]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _handle(self) -> None:
        headers = self.headers
        body = self._chunks() if "Transfer-Encoding" in headers else self._read(headers.get("Content-Length"))
        self.server.received.append(
            Received(self.command, self.path, headers["Idempotency-Key"], headers["Idempotency-Token"], body)
        )
        step = self.server.script[len(self.server.received) - 1]
        if isinstance(step, Says):
            self._say(step, len(step.body))
            return
        self.close_connection = True
        if step == STAY_SILENT:
            self.rfile.read(1)  # until the client hangs up
        elif step == BREAK_OFF:
            self._say(CREATED, len(CREATED.body) + 1)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

    def _say(self, says: Says, length: int) -> None:
        self.send_response(says.status)
        for name, value in says.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(says.body)

    def _read(self, length: str | None) -> bytes:
        return self.rfile.read(int(length or 0))

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *args: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@dataclass
class Sends:
    """Sends requests by one client over one connection; one not given back would block.

    `slept` are the waits asked for; time passes by nothing else. Nothing is encrypted, so no certificates are read.
    """

    mode: str
    keys: Keys | None = None
    slept: list[float] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    client_options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, method: str, url: str, **request: Any) -> httpx.Response:
        return self.all_of([(method, url, request)])[0]

    def all_of(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        """One after the other, by one client."""
        if self.mode == "async":
            return asyncio.run(self._send_async(requests))
        inner = httpx.HTTPTransport(verify=False, limits=httpx.Limits(max_connections=1))
        transport = IdempotentTransport(inner, sleep=self.slept.append, **self._all_options())
        with httpx.Client(transport=transport, **self._client_options()) as client:
            return [client.request(method, url, **options) for method, url, options in requests]

    async def _send_async(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        inner = httpx.AsyncHTTPTransport(verify=False, limits=httpx.Limits(max_connections=1))
        transport = AsyncIdempotentTransport(inner, sleep=sleep, **self._all_options())
        async with httpx.AsyncClient(transport=transport, **self._client_options()) as client:
            return [await client.request(method, url, **options) for method, url, options in requests]

    def stream_of(self, parts: list[bytes]) -> Any:
        """A body that can be read once."""
        if self.mode == "sync":
            return iter(parts)

        async def each() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        return each()

    def _all_options(self) -> dict[str, Any]:
        return {"keys": self.keys, "random": lambda: 0.5, "clock": lambda: sum(self.slept), **self.options}

    def _client_options(self) -> dict[str, Any]:
        return {"timeout": httpx.Timeout(10, pool=1), **self.client_options}


@pytest.fixture(params=["sync", "async"])
def sends(request: pytest.FixtureRequest) -> Sends:
    return Sends(request.param)
