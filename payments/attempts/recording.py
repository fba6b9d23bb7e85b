"""Record each call to a provider about an attempt: the only writer of its table.

A call takes as long as a network does, so a statement more after it counts for little. What cannot be written is
logged and lost: the call has been made, and its answer is settled all the same.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from django.db import Error

from payments.errors import ProviderError
from payments.models import Attempt, ProviderCall
from payments.providers.actions import NextAction
from payments.providers.base import Provider

log = logging.getLogger(__name__)

ANSWER_MAX = 200  # characters, as the row has

_CALLS = frozenset({"create", "query", "capture", "close", "refund", "query_refund"})


def recorded(provider: Provider, attempt: Attempt) -> Provider:
    """Return the provider with each of its calls recorded as one about `attempt`."""
    return cast("Provider", _Recorded(provider, attempt))


class _Recorded:
    def __init__(self, provider: Provider, attempt: Attempt) -> None:
        self._provider, self._attempt = provider, attempt

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._provider, name)
        return partial(self._call, name, found) if name in _CALLS else found

    def _call(self, name: str, call: Callable[..., Any], /, **arguments: Any) -> Any:
        began, answer, failed = time.monotonic(), "error", True
        try:
            result = call(**arguments)
            answer, failed = "opened" if isinstance(result, NextAction) else str(result.status), False
        except ProviderError as error:
            answer = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._record(name, answer, failed=failed, seconds=time.monotonic() - began)
        return result

    def _record(self, name: str, answer: str, *, failed: bool, seconds: float) -> None:
        said, took = answer.replace("\0", "")[:ANSWER_MAX], round(1000 * seconds)
        about = {"attempt": self._attempt, "method": name, "answer": said, "failed": failed, "milliseconds": took}
        try:
            ProviderCall.objects.create(**about)
        except Error:
            log.exception("The call %s about attempt %s is not recorded.", name, self._attempt.out_trade_no)
