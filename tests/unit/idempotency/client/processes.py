"""What the processes of the key store's tests run; spawned, so they import it by name."""

import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import httpx

from idempotency.client import FileKeys, IdempotentTransport


def meet_at(barrier: Barrier) -> None:
    """Where the processes of a pool wait for each other."""
    global _barrier  # noqa: PLW0603  it is inherited, and cannot be sent with a job
    _barrier = barrier


def obtain_together(path: Path, intents: list[str]) -> list[str]:
    """Open the store and obtain each intent's key, all processes at the same moment."""
    _barrier.wait()
    keys, obtained = FileKeys(path), []
    for intent in intents:
        _barrier.wait()
        obtained.append(keys.obtain(intent, target="POST http://x/"))
    return obtained


def send_and_die(path: Path, intent: str, seen: Connection) -> None:
    """Send a request; the process is gone, as by kill -9, the moment the request goes out."""

    def network(request: httpx.Request) -> httpx.Response:
        seen.send(request.headers["Idempotency-Key"])
        os.kill(os.getpid(), signal.SIGKILL)
        return httpx.Response(200)

    transport = IdempotentTransport(httpx.MockTransport(network), keys=FileKeys(path))
    with httpx.Client(transport=transport) as client:
        client.post("http://x/", extensions={"intent": intent})
