"""Ports for servers of tests: each process of a run has a range of its own.

The ranges, and those of Redis Cluster's buses above them, lie below the ports that connections are given.
"""

import itertools
import os
import random
import socket
from collections.abc import Iterator

LOWEST = 10_000
BUS_OFFSET = 10_000  # Redis Cluster's nodes talk to each other so far above their own port
RANGE = 2_000
RANGES = 5


def _candidates() -> Iterator[int]:
    """Go round through this process's range, from anywhere in it: other runs may be going on."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    index = (int(worker.removeprefix("gw")) + 1) % RANGES if worker else 0
    start = random.randrange(RANGE)
    for step in itertools.count():
        yield LOWEST + index * RANGE + (start + step) % RANGE


_ports = _candidates()


def free_port() -> int:
    """A port that nobody listens on right now."""
    return free_ports(1)[0]


def free_ports(count: int, *, bus: bool = False) -> list[int]:
    """Find loopback ports that nobody listens on; with `bus`, nor on those of their buses."""
    found = []
    for port in itertools.islice(_ports, RANGE):
        if is_free(port) and (not bus or is_free(port + BUS_OFFSET)):
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"not {count} of {RANGE} ports are free")


def is_free(port: int) -> bool:
    """Whether a server could listen on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
