"""What is known about money. Fields and constraints only.

Writers: `payments.attempts.services` (payments, and attempts until a provider has spoken),
`payments.settlement.observations` (facts and every state that follows from them, by the statements of
`payments.settlement.recording`), `payments.refunds.steps` (refunds), `payments.settlement.inbox` (notifications),
`payments.reconciliation.bills` (comparisons and differences), `payments.settlement.journal` (the journal),
`payments.settlement.sequence` (events), `payments.operations.decisions` (audit entries). Amounts are integers in
the currency's minor unit.
"""

from payments.models.audit import AuditEntry
from payments.models.bill import BillComparison, Difference
from payments.models.event import PaymentEvent
from payments.models.facts import Anomaly, Notification, Observation
from payments.models.journal import JournalEntry, JournalLine
from payments.models.payment import Attempt, Payment, Refund

__all__ = [
    "Anomaly",
    "Attempt",
    "AuditEntry",
    "BillComparison",
    "Difference",
    "JournalEntry",
    "JournalLine",
    "Notification",
    "Observation",
    "Payment",
    "PaymentEvent",
    "Refund",
]
