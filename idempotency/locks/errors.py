"""Errors of locks."""


class LockError(Exception):
    """Base of the errors of locks. Itself for a command that the server refuses."""


class LockTimeout(LockError):
    """Lock that `with lock:` did not get within its `wait_seconds`."""


class NotHeld(LockError):
    """The lock was released or renewed by a caller that does not hold it; nothing was changed."""


class LockLost(NotHeld):
    """The lease ended, or the server forgot it. The holder may have met another one since."""


class UpgradeRefused(LockError):
    """A reader asks for the write lock: release the read lock first, or two wait for ever."""


class LockUnavailable(LockError):
    """The server did not reply; the lock may have been taken, and ends by its lease."""


def not_held(name: str) -> NotHeld:
    return NotHeld(f"{name!r} is not held by this thread, task or owner.")
