"""Calls of functions, which are the same every time, unlike seconds."""

import gc
import sys
from collections.abc import Callable
from typing import Any


def profiled(see: Callable[[Any, str, Any], None], work: Callable[[], Any]) -> None:
    """Do `work`, and let `see` hear of each of its calls alone."""
    gc.disable()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()


def fewest_calls(work: Callable[[], Any], *, before: Callable[[], Any] = lambda: None) -> int:
    """Return how many Python and C functions `work` calls: the fewest of ten runs."""
    found: list[int] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        found[-1] += event in {"call", "c_call"}

    for _ in range(10):
        before()
        found.append(0)
        profiled(count, work)
    return min(found)
