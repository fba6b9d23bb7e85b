"""A provider's statements about a dispute: a payment is taken back without us. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class DisputeStatus(StrEnum):
    """Status of a dispute, for us."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """State of a dispute at one time, as a provider has it.

    Attributes:
        reason: the provider's own word.
        respond_by: until when it takes our answer, aware; None where it expects none.
    """

    status: DisputeStatus
    reason: str
    respond_by: datetime | None = None
