"""The bookkeeping of what a process holds, where threads are in each other's way."""

import time
from typing import Any

from idempotency.locks.holder import current
from idempotency.locks.holds import Hold, Holds


class Ending(Hold):
    """Another thread ends its renewals right after each look at it."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "due_at":
            self.due_at = None
        return found


def ending(key: str) -> Hold:
    now = time.monotonic()
    return Ending(
        key=key,
        owner="me",
        token=1,
        lease_seconds=30.0,
        ends_at=now + 30,
        holder=current(),
        renew_until=now + 300,
        due_at=now,
    )


def test_renewals_that_end_while_they_are_looked_at_disturb_nobody() -> None:
    """The watchdog is one thread for all locks: it must not end with one of them."""
    looked_at = {
        "add": lambda holds, hold: holds.add(hold),
        "next": lambda holds, hold: (holds._holds.update({(hold.key, "me"): hold}), holds.next_due()),
        "due": lambda holds, hold: (
            holds._holds.update({(hold.key, "me"): hold}),
            holds.due(within_seconds=1.0),
        ),
    }
    for name, look in looked_at.items():
        holds = Holds(stir=lambda: None)
        look(holds, ending(name))
        assert holds.next_due() == float("inf")
        assert holds.due(within_seconds=1.0) == []
