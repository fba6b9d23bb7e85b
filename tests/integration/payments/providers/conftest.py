"""A sandbox for the session, our providers towards it, and a listener for its notifications."""

import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from payments.providers import registry
from payments.providers.base import Provider
from tests.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path_factory.mktemp("sandbox"))
    yield sandbox
    sandbox.stop()


@pytest.fixture
def sandbox(sandbox_process: Sandbox) -> Iterator[Sandbox]:
    """The session's sandbox, behaving well before and after."""
    sandbox_process.reset_faults()
    yield sandbox_process
    sandbox_process.reset_faults()


@pytest.fixture(params=["wechat", "alipay", "stripe"])
def provider(request: pytest.FixtureRequest, sandbox: Sandbox) -> Iterator[Provider]:
    """Each channel in turn, built from settings as the project builds it."""
    built: Any = registry.build(sandbox.channels())
    yield built[request.param]
    for one in built.values():
        one._http.close()


class Listener:
    """Takes notifications in; `next()` waits for one: (headers, body)."""

    def __init__(self) -> None:
        self.received: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.put((dict(self.headers.items()), body))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"success")

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/notify"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def next(self) -> tuple[dict[str, str], bytes]:
        return self.received.get(timeout=20)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.stop()
