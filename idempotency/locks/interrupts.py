"""Tell a signal handler's exception from a client's: `TimeoutError` may be either, and redis-py wraps it."""

import signal
from types import CodeType, TracebackType


def interruption(error: BaseException) -> BaseException | None:
    """Return what one of the signal handlers in force raised, if `error` is that or was raised on its account.

    A handler is a function, a method or a `partial`; one of another class is not recognised.
    """
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(getattr(each, "func", each), "__code__", None) for each in handlers} - {None}
    cause: BaseException | None = error
    while cause is not None and not _passed(cause.__traceback__, codes):
        cause = cause.__context__
    return cause


def _passed(trace: TracebackType | None, codes: set[CodeType]) -> bool:
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None
