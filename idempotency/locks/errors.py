"""What goes wrong with a lock.

==================== ============================================================================
error                when
==================== ============================================================================
`LockTimeout`        `with lock:` did not get it within its `wait_seconds`
`NotHeld`            released or renewed by someone who does not hold it; nothing was changed
`LockLost`           its lease ended, or its server forgot it, while the holder still worked
`UpgradeRefused`     a holder of the read lock asks for the write lock: two would wait for ever
`LockUnavailable`    the server did not answer; whether the lock was taken is not known to us, and
                     it ends by its lease
`LockError`          itself: the server's ACL refuses the client's user a command or a channel
==================== ============================================================================
"""


class LockError(Exception):
    """Any of the above, and what an ACL refuses."""


class LockTimeout(LockError):
    """Not acquired in time."""


class NotHeld(LockError):
    """The caller does not hold it."""


class LockLost(NotHeld):
    """The caller held it, and does no more: what it did since then may have met another holder."""


class UpgradeRefused(LockError):
    """Reading, and now wants to write: release the read lock first."""


class LockUnavailable(LockError):
    """The server did not answer in time."""
