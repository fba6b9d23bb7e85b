"""HTTP server, a thread a connection; without a timer, so it sleeps while idle."""

from typing import Any
from wsgiref.types import WSGIApplication

from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

SOCKET = "sandbox.socket"  # in a request's environment


class _Handler(WSGIRequestHandler):
    disable_nagle_algorithm = True  # head and body are written apart, and a body would wait for the head's receipt

    def get_environ(self) -> dict[str, Any]:
        return {**super().get_environ(), SOCKET: self.connection}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in the standard library
        """Log nothing: the store has the outcome of each call."""


class Server(ThreadedWSGIServer):
    """Serve `application` on a port of this machine, open from the beginning."""

    request_queue_size = 512

    def __init__(self, port: int, application: WSGIApplication) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.set_app(application)

    def serve_for_ever(self) -> None:
        """Serve until an exception, as of a signal."""
        # None is a selector's "until something happens"; the default wakes up twice a second to see a shutdown
        self.serve_forever(poll_interval=None)  # type: ignore[arg-type]
