"""Tables about money. Amounts are integers in the currency's minor unit.

Writers: `payments.attempts` (payments; calls to providers; attempts until a provider has spoken),
`payments.settlement.apply` (facts, journal, anomalies, events, deliveries, and states that follow from facts),
`payments.settlement.notifications` (notifications), `payments.settlement.events` (what became of events),
`payments.deliveries` (what became of deliveries), `payments.refunds` (refunds), `payments.reconciliation`
(comparisons, differences, next questions), `payments.operations.actions` (audit entries).
"""

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

if apps.get_containing_app_config(__name__) is None:  # Django would speak of an app_label
    raise ImproperlyConfigured("Add 'payments' to INSTALLED_APPS, then run `manage.py migrate payments`.")

from payments.models.audit import AuditEntry, ProviderCall
from payments.models.bill import BillComparison, Difference
from payments.models.event import Delivery, PaymentEvent
from payments.models.facts import Anomaly, Notification, Observation
from payments.models.journal import JournalEntry, JournalLine
from payments.models.payment import Attempt, Payment, Refund

__all__ = [
    "Anomaly",
    "Attempt",
    "AuditEntry",
    "BillComparison",
    "Delivery",
    "Difference",
    "JournalEntry",
    "JournalLine",
    "Notification",
    "Observation",
    "Payment",
    "PaymentEvent",
    "ProviderCall",
    "Refund",
]
