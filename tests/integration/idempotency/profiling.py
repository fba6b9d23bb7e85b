"""Calls of functions, which are the same every time, unlike seconds."""

import gc
import sys
from collections.abc import Callable
from typing import Any


def profiled(see: Callable[[Any, str, Any], None], work: Callable[[], Any]) -> None:
    """Do `work`, and let `see` hear of each of its calls; of nobody else's, as garbage is collected elsewhere."""
    gc.disable()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()


def fewest_calls(work: Callable[[], Any], *, before: Callable[[], Any] = lambda: None) -> int:
    """Return the calls of Python and C functions of `work`: the fewest of ten, as now and then it has more to do."""
    found: list[int] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        found[-1] += event in {"call", "c_call"}

    for _ in range(10):
        before()
        found.append(0)
        profiled(count, work)
    return min(found)
