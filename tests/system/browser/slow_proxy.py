"""A forward proxy of the browser that delays the first request to a server."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

HEAD_MAX = 65_536


class _Handler(socketserver.StreamRequestHandler):
    """One request a connection: the server ends it, and so a stream of events passes as it is."""

    server: "SlowProxy"
    rbufsize = 0  # what follows the head is left to `_copy`

    def handle(self) -> None:
        head = self._head()
        if not head or head[0].startswith("CONNECT"):
            return  # to the browser's maker
        method, target, version = head[0].split(" ")
        address = urlsplit(target)
        if address.port == self.server.slow_port and not self.server.delayed:
            self.server.delayed.append(address.path)
            self.server.ended.wait(self.server.delay_seconds)
        fields = [line for line in head[1:] if not line.lower().startswith(("connection:", "proxy-connection:"))]
        path = address._replace(scheme="", netloc="").geturl()
        with socket.create_connection((address.hostname, address.port)) as upstream:
            lines = [f"{method} {path} {version}", *fields, "Connection: close", "", ""]
            upstream.sendall("\r\n".join(lines).encode("latin-1"))
            threading.Thread(target=_copy, args=(self.connection, upstream), daemon=True).start()
            _copy(upstream, self.connection, may_be_kept=self.server.lets_pages_be_kept)

    def _head(self) -> list[str]:
        lines: list[str] = []
        while line := self.rfile.readline(HEAD_MAX).decode("latin-1").rstrip("\r\n"):
            lines.append(line)
        return lines


def _copy(source: socket.socket, target: socket.socket, *, may_be_kept: bool = False) -> None:
    """Until one of them has gone, which the other hears of."""
    try:
        while part := source.recv(HEAD_MAX):
            target.sendall(part.replace(b"no-store", b"no-cache") if may_be_kept else part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class SlowProxy(socketserver.ThreadingTCPServer):
    """Delay the first request to `slow_port`.

    Attributes:
        delayed: its path.
        lets_pages_be_kept: whether ``no-store`` of a page is left out on the way.
    """

    daemon_threads = True

    def __init__(self, slow_port: int, *, delay_seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.slow_port = slow_port
        self.delay_seconds = delay_seconds
        self.delayed: list[str] = []
        self.lets_pages_be_kept = False
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def slow_proxy(slow_port: int, *, delay_seconds: float) -> Iterator[SlowProxy]:
    """A running one."""
    with SlowProxy(slow_port, delay_seconds=delay_seconds) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        yield proxy
        proxy.ended.set()
        proxy.shutdown()
        thread.join()
