"""Meaning of redis-py's errors: an outage, our fault, or a signal handler's exception.

A command that is refused inside a script is an error of the script, whose text ends with the refusal. redis-py
wraps the exceptions of handlers: a `TimeoutError` may be theirs or the client's.
"""

import re
import signal
from traceback import walk_tb

from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

# redis-py drops the first word of errors that it has a class for; MOVED and MASTERDOWN are subclasses
_PASSING = (ReadOnlyError, OutOfMemoryError, ClusterDownError, TryAgainError, AskError)
_PASSING_WORDS = ("OOM", "READONLY", "LOADING", "NOREPLICAS", "MISCONF", "BUSY", "UNBLOCKED")
# before Redis 7 a refusal inside a script comes at the end of a sentence about the script
_OF_A_SCRIPT = r"^Error running script .*?: -(?=[A-Z])"
# a script's command is denied: by Redis 7 and Valkey, and by Redis 6
_DENIED = ("ACL failure in script", "The user executing the script can't")


def is_unavailable(error: BaseException) -> bool:
    """Return whether the server is away, full, or a replica. Else the fault is ours."""
    return not isinstance(error, ResponseError) or isinstance(error, _PASSING) or _says(error, *_PASSING_WORDS)


def is_of_a_replica(error: ResponseError) -> bool:
    """Return whether the server refused because it is no master, or not any more."""
    return isinstance(error, ReadOnlyError) or _says(error, "READONLY ")


def is_denied(error: BaseException) -> bool:
    """Return whether the server's ACL refuses the client's user a command or a channel."""
    return isinstance(error, NoPermissionError) or any(text in str(error) for text in _DENIED)


def _says(error: BaseException, *words: str) -> bool:
    return re.sub(_OF_A_SCRIPT, "", str(error)).startswith(words)


def interruption(error: BaseException) -> BaseException | None:
    """Return the signal handler's exception that `error` is, or was raised because of.

    Handlers in force are looked at: a function, a method or a `partial`; another class is not recognised.
    """
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {code for each in handlers if (code := getattr(getattr(each, "func", each), "__code__", None))}
    inside = {frame for frame, _ in walk_tb(error.__traceback__)}
    cause: BaseException | None = error
    while cause is not None:
        frames = [frame for frame, _ in walk_tb(cause.__traceback__)]
        if frames and frames[0] not in inside:
            return None  # the caller was handling it before the client was asked
        if any(frame.f_code in codes for frame in frames):
            return cause
        cause = cause.__context__
    return None
