"""The way between a plug-in and its provider, and the plug-in's endpoint for notifications."""

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

SECONDS_MAX = 20.0
MEETING_SECONDS = 1.0
_OF_THE_CONNECTION = frozenset({"connection", "content-length", "transfer-encoding", "date", "server"})
_QUESTIONS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer, as it travels."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


# takes the method and the way to the provider, and returns the answer; None hangs up
Behaviour = Callable[[str, Callable[[], Reply]], Reply | None]


def honest(method: str, forward: Callable[[], Reply]) -> Reply | None:
    """Pass everything on."""
    return forward()


def losing(method: str, forward: Callable[[], Reply]) -> Reply | None:
    """Let a command take effect, and lose its answer."""
    reply = forward()
    return reply if method in _QUESTIONS else None


def saying(reply: Reply | None) -> Behaviour:
    """Answer everything with `reply`, and pass nothing on."""
    return lambda method, forward: reply


def meeting(barrier: threading.Barrier) -> Behaviour:
    """Hold each answer until all threads have asked, if all make as many calls."""

    def meet(method: str, forward: Callable[[], Reply]) -> Reply | None:
        reply = forward()
        with suppress(threading.BrokenBarrierError):
            barrier.wait(MEETING_SECONDS)
        return reply

    return meet


class Server:
    """HTTP server on a port of this machine, a thread a connection."""

    def __init__(self, serve: Callable[[BaseHTTPRequestHandler, bytes], Reply | None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                reply = serve(self, body)
                if reply is None:
                    self.close_connection = True
                    with suppress(OSError):
                        self.connection.shutdown(socket.SHUT_RDWR)
                    return
                with suppress(OSError):  # the other side may have given up waiting
                    self.answer(reply)

            def answer(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    if name.lower() not in _OF_THE_CONNECTION:
                        self.send_header(name, value)
                if reply.status != httpx.codes.NO_CONTENT:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815  the base class' names

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and wait for the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Relay(Server):
    """Stands between a plug-in and its simulator; honest unless a case changes it."""

    def __init__(self, target: str) -> None:
        self._target = target.rstrip("/")
        self._http = httpx.Client(timeout=SECONDS_MAX, trust_env=False)
        self._behaviour: Behaviour = honest
        self.last = Reply(status=500)  # the answer that was passed on last
        self.calls = 0
        super().__init__(self._serve)

    @contextmanager
    def behaving(self, behaviour: Behaviour) -> Iterator[None]:
        """Treat every call so, inside the block."""
        self._behaviour = behaviour
        try:
            yield
        finally:
            self._behaviour = honest

    def stop(self) -> None:
        super().stop()
        self._http.close()

    def _serve(self, asked: BaseHTTPRequestHandler, body: bytes) -> Reply | None:
        def forward() -> Reply:
            # with its Host, so that the provider names the relay in the addresses that it gives
            kept = [(name, value) for name, value in asked.headers.items() if name.lower() != "connection"]
            answer = self._http.request(asked.command, self._target + asked.path, headers=kept, content=body)
            self.last = Reply(status=answer.status_code, body=answer.content, headers=dict(answer.headers))
            return self.last

        self.calls += 1
        try:
            return self._behaviour(asked.command, forward)
        except httpx.HTTPError:  # nobody there, or closed meanwhile
            return None


class Endpoint(Server):
    """Server that takes notifications in, and acknowledges them as the plug-in does."""

    def __init__(self, acknowledged: Reply) -> None:
        self._received: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        self._reply = acknowledged

        def serve(asked: BaseHTTPRequestHandler, body: bytes) -> Reply:
            reply = self._reply  # before a case that waits for the notification changes it again
            self._received.put((dict(asked.headers.items()), body))
            return reply

        super().__init__(serve)

    @contextmanager
    def answering(self, reply: Reply) -> Iterator[None]:
        """Answer every notification so, inside the block."""
        before, self._reply = self._reply, reply
        try:
            yield
        finally:
            self._reply = before

    def next(self) -> tuple[dict[str, str], bytes]:
        """Wait for a notification. Raises queue.Empty after `SECONDS_MAX`."""
        return self._received.get(timeout=SECONDS_MAX)
