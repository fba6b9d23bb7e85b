"""What the processes of ZooKeeper's tests run; spawned, so they import it by name."""

import contextlib
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from kazoo.client import KazooClient

from idempotency.locks.zookeeper import ZooKeeperLock

NAME = "order/7 ü"
SESSION_SECONDS = 3.0  # of a process that is to be killed: soon over, and not by a busy machine
WAIT_SECONDS = 60.0  # for what must come; never for what must not


@contextlib.contextmanager
def a_session(hosts: str, *, seconds: float = WAIT_SECONDS) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=seconds)
    client.start(timeout=WAIT_SECONDS)
    yield client
    client.stop()
    client.close()


def contend(hosts: str, folder: Path, barrier: Barrier, turns: int) -> None:
    """Take it `turns` times; meeting another inside is an error."""
    with a_session(hosts) as client:
        lock = ZooKeeperLock(NAME, client=client)
        barrier.wait(WAIT_SECONDS)
        for _ in range(turns):
            with lock:
                os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
                counted = int((folder / "count").read_text())
                with (folder / "tokens").open("a") as tokens:
                    tokens.write(f"{lock.token}\n")
                (folder / "count").write_text(str(counted + 1))
                (folder / "inside").unlink()


def take_and_tell(hosts: str, told: Connection) -> None:
    """Take it, say so, and keep it until killed, or until nobody is there who could."""
    with a_session(hosts, seconds=SESSION_SECONDS) as client, contextlib.suppress(EOFError):
        lock = ZooKeeperLock(NAME, client=client)
        lock.acquire()
        told.send(lock.token)
        told.recv()
