"""Modes of a keyed handler, which alone knows if it calls the outside world."""

from enum import StrEnum


class Mode(StrEnum):
    """Mode of a keyed handler.

    `ATOMIC`: ledger row, business writes and stored response commit in one transaction.
    `PHASED`: the claim commits first under a lease, the handler opens its own short transactions around calls
    to the outside world, and can be run again after a crash: it resumes from what it committed.
    """

    ATOMIC = "atomic"
    PHASED = "phased"


ATOMIC = Mode.ATOMIC
PHASED = Mode.PHASED
