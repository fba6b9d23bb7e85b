"""Errors of locks."""


class LockError(Exception):
    """Any error below. Itself where the server refuses a command: by its ACL, or for a key that is not ours."""


class LockTimeout(LockError):
    """Lock that `with lock:` did not get within its `wait_seconds`."""


class NotHeld(LockError):
    """The lock was released or renewed by a caller that does not hold it; nothing was changed."""


class LockLost(NotHeld):
    """The lease ended, or the server forgot it. The holder may have met another one since."""


class UpgradeRefused(LockError):
    """A holder of the read lock asks for the write lock. Two would wait for ever: release it first."""


class LockUnavailable(LockError):
    """The server did not reply; the lock may have been taken, and ends by its lease."""


def not_held(name: str) -> NotHeld:
    return NotHeld(f"{name!r} is not held by this thread, task or owner.")
