"""Errors of locks.

==================== ============================================================================
error                when
==================== ============================================================================
`LockTimeout`        `with lock:` did not get it within its `wait_seconds`
`NotHeld`            released or renewed by a caller that does not hold it; nothing was changed
`LockLost`           its lease ended, or its server forgot it, while the holder still worked
`UpgradeRefused`     a holder of the read lock asks for the write lock: two would wait for ever
`LockUnavailable`    the server did not reply; the lock may have been taken, and ends by its lease
`LockError`          itself: the server's ACL refuses the client's user a command or a channel
==================== ============================================================================
"""


class LockError(Exception):
    """Any of the above, and a refusal by an ACL."""


class LockTimeout(LockError):
    """The lock was not acquired in time."""


class NotHeld(LockError):
    """The caller does not hold it."""


class LockLost(NotHeld):
    """The caller held it, and lost it: its work since then may have met another holder."""


class UpgradeRefused(LockError):
    """A reader wants to write: release the read lock first."""


class LockUnavailable(LockError):
    """The server did not reply in time."""
