"""Messages to PostgreSQL, by libpq's own trace of a connection."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MESSAGE = re.compile(r"^[-\d]+ [:.\d]+\t([FB])\t\d+\t(\w+)", re.MULTILINE)


@contextmanager
def messages(database: Any) -> Iterator[list[int]]:
    """Yield a list; after the block it has the number of statements of each awaited message."""
    sent: list[int] = []
    with tempfile.TemporaryFile("w+") as traced:
        database.connection.pgconn.trace(traced.fileno())
        try:
            yield sent
        finally:
            database.connection.pgconn.untrace()
            traced.seek(0)
            for side, kind in _MESSAGE.findall(traced.read()):
                if side == "F":
                    sent.append(0)
                elif kind == "CommandComplete":
                    sent[-1] += 1
