"""Money on its way back, and payments that don't count, as the shopper sees them. Reads only."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.utils.translation import gettext_lazy as _

from payments.models import Anomaly, Payment, Refund
from payments.states import OPEN_REFUNDS, RefundStatus


class Standing(StrEnum):
    """How far a refund is."""

    UNDER_WAY = "under_way"
    DELAYED = "delayed"  # the provider has not carried it out; we keep trying, and a person looks at it
    DONE = "done"
    REFUSED = "refused"  # nothing moved, and nothing will by itself


_WORDS = {
    Standing.UNDER_WAY: _("Being processed"),
    Standing.DELAYED: _("Delayed"),
    Standing.DONE: _("Done"),
    Standing.REFUSED: _("Refused"),
}


@dataclass(frozen=True, slots=True)
class RefundView:
    """A refund as the shopper sees it."""

    refund: Refund

    @property
    def standing(self) -> Standing:
        """How far it is. An open one has its provider's word only where that did not carry it out."""
        if self.open:
            return Standing.DELAYED if self.refund.message else Standing.UNDER_WAY
        return Standing.DONE if self.refund.status == RefundStatus.SUCCEEDED else Standing.REFUSED

    @property
    def words(self) -> Any:
        """The same, for the list."""
        if self.standing is Standing.UNDER_WAY and self.refund.status == RefundStatus.REQUESTED:
            return _("Requested")
        return _WORDS[self.standing]

    @property
    def open(self) -> bool:
        """Whether it may still succeed or fail."""
        return self.refund.status in OPEN_REFUNDS

    @property
    def state(self) -> str:
        """Changes whenever the page would say something else of it."""
        return f"{self.refund.status}{'!' if self.refund.message else ''}"


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A payment that came in and does not count: of another amount, too late, or a second one.

    Attributes:
        refund: by which our policy gives it back; None where a person decides.
    """

    anomaly: Anomaly
    refund: RefundView | None

    @property
    def is_second(self) -> bool:
        """Whether the order was paid before."""
        return self.anomaly.kind == Anomaly.Kind.PAID_TWICE

    @property
    def is_late(self) -> bool:
        """Whether the order was closed before."""
        return self.anomaly.kind == Anomaly.Kind.PAID_AFTER_CLOSE

    @property
    def standing(self) -> str:
        """How far its refund is; empty without one."""
        return self.refund.standing if self.refund else ""

    @property
    def amount_minor(self) -> int:
        """What came in, in minor units of `currency`."""
        return int(self.anomaly.detail["amount_minor"])

    @property
    def currency(self) -> str:
        """That in which it came, which may be another than the order's."""
        return str(self.anomaly.detail["currency"])


def refunds_of(payment: Payment) -> list[RefundView]:
    """In the order in which they were asked for."""
    rows = payment.refunds.select_related("anomaly", "payment").order_by("created_at", "id")
    return [RefundView(refund) for refund in rows]


def not_taken_of(payment: Payment, refunds: list[RefundView]) -> list[NotTaken]:
    """In the order in which they came.

    Args:
        refunds: all of the payment's.
    """
    by_policy = {one.refund.anomaly_id: one for one in refunds}
    # of what is filed about a payment, this names payments that came in, and not refunds or notifications
    filed = payment.anomalies.filter(detail__has_key="expected_minor").order_by("id")
    return [NotTaken(anomaly, by_policy.get(anomaly.pk)) for anomaly in filed]
