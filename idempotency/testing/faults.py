"""Faults of `assert_once`: copies at once, a failed commit, a death after it, a lost Redis."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import Queue
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import OperationalError, connections
from django.test import override_settings

from idempotency.postgres import home
from idempotency.testing.clients import forget

SECONDS = 60.0  # a thread that has not come so far by then never will


def at_once(send: Callable[[], Any], copies: int) -> list[Any]:
    """Call `send` in so many threads from one barrier on; return the answers, or exceptions."""
    barrier = threading.Barrier(copies, timeout=SECONDS)

    def run() -> Any:
        try:
            home.connection().ensure_connection()
            barrier.wait()
            return send()
        except Exception as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(copies) as pool:
        jobs = [pool.submit(run) for _ in range(copies)]
        return [job.result() for job in jobs]


@contextmanager
def commits_fail() -> Iterator[None]:
    """Run the block with a database that refuses each commit of this thread."""
    database = home.connection()

    def refuse() -> None:
        raise OperationalError("assert_once lets this commit fail.")

    def execute_unless_commit(execute: Callable[..., Any], sql: Any, *given: Any) -> Any:
        if str(sql).endswith("COMMIT"):  # goes with the ledger's row
            refuse()
        return execute(sql, *given)

    database.commit = refuse
    try:
        with database.execute_wrapper(execute_unless_commit):
            yield
    finally:
        del database.commit


class _Died(BaseException):
    """End of a thread that stood for a process."""


@contextmanager
def dead_after_commit(send: Callable[[], Any], *, has_counted: Callable[[], bool]) -> Iterator[None]:
    """Run the block after a process has called `send` and died at a commit or its answer.

    A thread stands for the process. It stops after the commit, cleans nothing up and holds what it held, as after
    SIGKILL, until the block ends.

    Args:
        has_counted: asked after each commit of the call, outside of it; True: it dies here.
    """
    commits, orders = Queue[bool](), Queue[bool]()  # True: there was one; it goes on

    def commit_and_wait(database: Any, commit: Callable[[], None]) -> None:
        commit()
        commits.put(True)
        if not orders.get():
            database.run_on_commit = []
            raise _Died

    def live() -> None:
        database = home.connection()
        database.commit = partial(commit_and_wait, database, database.commit)
        try:
            send()
        except (Exception, _Died):  # noqa: S110  nobody hears of it: the effects are counted
            pass
        finally:
            del database.commit
            connections.close_all()
            commits.put(False)

    thread = threading.Thread(target=live, name="dead-after-commit", daemon=True)
    thread.start()
    try:
        while commits.get(timeout=SECONDS) and not has_counted():
            orders.put(True)
        yield
    finally:
        orders.put(False)
        thread.join(SECONDS)


@contextmanager
def redis_lost() -> Iterator[None]:
    """Run the block with every cache but the sessions' empty, and nothing remembered.

    Nothing is deleted: the caches' keys get another prefix.
    """
    sessions = settings.SESSION_CACHE_ALIAS if "cache" in settings.SESSION_ENGINE else None
    emptied = {
        alias: options if alias == sessions else {**options, "KEY_PREFIX": uuid4().hex}
        for alias, options in settings.CACHES.items()
    }
    with override_settings(CACHES=emptied):
        forget()
        yield
