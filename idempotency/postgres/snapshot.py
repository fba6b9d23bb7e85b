"""One state of the database for several reads."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def snapshot() -> Iterator[None]:
    """Have the block's queries read what was committed when the first one began, and not write.

    Without it each query sees what was committed before itself, and two of them may not fit each other.

    Transaction: opens one, three statements more. In an open one the block reads as that transaction does.
    """
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
