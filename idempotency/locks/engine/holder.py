"""Holders: one thread or asyncio task of this process. Never shared, never reused.

A thread's or task's own numbers are given to a successor when it has ended, so each gets one of ours at its first
lock. A child task is another holder than its parent. A forked child is another process than its parent.
"""

import asyncio
import itertools
import os
import secrets
import socket
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from idempotency.arguments import text


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of locks in this process."""

    name: str  # unique over all machines
    alive: Callable[[], bool]  # False once it cannot release any more; then its locks are renewed no more
    suffix: bytes = b""  # of its terms, as places.lua reads them: for whom are its permits, or `/`


class _Numbers(threading.local):
    own: Holder | None = None
    life: set[None] | None = None  # of a thread or gevent greenlet: it goes when that ends


_counter = itertools.count(1)
_of_thread = _Numbers()
_of_task: "weakref.WeakKeyDictionary[asyncio.Task[object], Holder]" = weakref.WeakKeyDictionary()
process: str  # own name of this one, which says where it runs; another one after a fork


def current() -> Holder:
    # asked this way a thread without a loop costs no exception
    task = None if asyncio._get_running_loop() is None else asyncio.current_task()
    if task is None:
        if _of_thread.own is None:
            # `threading` takes a thread that it did not start for alive for ever, so its own storage is asked
            _of_thread.life = set()
            life = weakref.ref(_of_thread.life)
            _of_thread.own = Holder(_next_name(), lambda: life() is not None)
        return _of_thread.own
    found = _of_task.get(task)
    if found is None:
        reference = weakref.ref(task)
        found = _of_task[task] = Holder(_next_name(), lambda: (one := reference()) is not None and not one.done())
    return found


def named(owner: str) -> Holder:
    """Make a holder with the caller's name, for code that crosses threads. It never ends."""
    if not text("owner", owner):
        raise ValueError("owner must not be empty: all callers that give no name would be one holder")
    return Holder(f"named:{owner}", lambda: True)


def _next_name() -> str:
    return f"{process}:{next(_counter)}"


def _forget() -> None:
    global process  # noqa: PLW0603  the one thing that a fork must change in place
    process = f"{quote(socket.gethostname())}/{os.getpid()}/{secrets.token_hex(8)}"
    _of_thread.own = None
    _of_task.clear()


_forget()
os.register_at_fork(after_in_child=_forget)
