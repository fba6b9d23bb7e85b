"""Interleaved rounds, forked callers and plain HTTP: the harness of every benchmark.

A figure is a ratio between two ways of doing the same work, taken within one round. The ways take turns in short
rounds, in shuffled order, so that a slow moment of the machine meets all of them.
"""

import argparse
import multiprocessing
import random
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

NO_CONTENT = 204
SEED = 27  # of the orders of all rounds
FORK = multiprocessing.get_context("fork")

Figure = TypeVar("Figure")


def options(name: str, arguments: Sequence[str], **defaults: Any) -> argparse.Namespace:
    """Parse `--option VALUE` for each default; the default gives the type."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}")
    for option, default in defaults.items():
        parser.add_argument(f"--{option}", type=type(default), default=default)
    return parser.parse_args(arguments)


def take_turns(
    name: str, ways: Mapping[str, Callable[[], Figure]], *, rounds: int, warm: int = 0
) -> dict[str, list[Figure]]:
    """Measure every way once a round, in shuffled order; return title -> figures.

    Args:
        warm: rounds before them whose figures are dropped.
    """
    seen: dict[str, list[Figure]] = {title: [] for title in ways}
    order, dice, began = list(ways), random.Random(SEED), time.monotonic()
    for number in range(-warm, rounds):
        if number % 2:
            order.reverse()
        else:
            dice.shuffle(order)
        for title in order:
            figure = ways[title]()
            if number >= 0:
                seen[title].append(figure)
        left = (time.monotonic() - began) / (number + warm + 1) * (rounds - number - 1)
        print(f"{name}: round {number + 1}/{rounds}, {left:.0f} s left", flush=True)
    return seen


def ratio(rates: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the rounds' own ratios."""
    return statistics.median(rate / other for rate, other in zip(rates, base, strict=True))


def fork_all(count: int, work: Callable[[int], Iterator[None]]) -> float:
    """Run `work(number)` in forked processes, together from its `yield`; return the seconds.

    Raises:
        RuntimeError: a process failed; its traceback is on stderr.
    """
    ready, times = FORK.Barrier(count), FORK.Array("d", 2 * count)

    def run(number: int) -> None:
        steps = work(number)
        next(steps)
        ready.wait()
        times[number] = time.monotonic()
        next(steps, None)
        times[count + number] = time.monotonic()

    children = [FORK.Process(target=run, args=(number,)) for number in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise RuntimeError("A process of the benchmark failed.")
    return max(times[count:]) - min(times[:count])


def post(path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return a whole request for `ask`."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def connect(port: int) -> socket.socket:
    """Open a connection to a server on this machine."""
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def ask(connection: socket.socket, request: bytes) -> tuple[int, bytes]:
    """Send a request and return status and body; the connection stays open.

    A library would take CPU that belongs to the servers.

    Raises:
        ConnectionError: the server closed the connection.
    """
    connection.sendall(request)
    head, found, body = b"", b"", b""
    while not found:
        head += _more(connection)
        head, found, body = head.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == NO_CONTENT:
        return status, b""
    lower = head.lower()
    length = int(lower[lower.index(b"content-length:") + 15 :].split(b"\r\n")[0])
    parts, left = [body], length - len(body)
    while left:
        parts.append(_more(connection))
        left -= len(parts[-1])
    return status, b"".join(parts)


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("The server closed the connection.")
    return data
