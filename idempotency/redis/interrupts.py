"""Exceptions of signal handlers, which redis-py wraps. A `TimeoutError` may be theirs or the client's."""

import signal
from traceback import walk_tb


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
