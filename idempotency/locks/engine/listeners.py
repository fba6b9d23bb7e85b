"""Listeners: callbacks for how a hold of this process ends, run where that is noticed: there is no thread."""

import logging
from collections.abc import Callable
from typing import Any

from idempotency.observability import metrics

log = logging.getLogger(__name__)

Listener = Callable[[str, int], None]


class Listeners:
    """Callbacks by the end that they want: ``lost``, ``expired`` or ``released``. False where there are none."""

    def __init__(self, name: str, **calls: Listener | None) -> None:
        self._name = name
        self.calls = {end: call for end, call in calls.items() if call is not None}

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, end: str, hold: Any) -> None:
        """Call the listener of such an end. Its failure is logged and counted, and nothing else."""
        try:
            if end in self.calls:
                self.calls[end](self._name, hold.token)
        except Exception:
            metrics.background_failures.labels("locks-listener").inc()
            log.exception("A listener of %r failed", self._name)
