"""Refunds and uncredited payments, as the shopper sees them. Reads only."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from payments.models import Anomaly, Payment, Refund
from payments.states import OPEN_REFUNDS, RefundStatus
from shop.models import Order, OrderStatus


class Progress(StrEnum):
    UNDER_WAY = "under_way"
    DELAYED = "delayed"  # the provider has not carried it out; we keep trying, and a person looks at it
    DONE = "done"
    REFUSED = "refused"  # nothing moved, and nothing will by itself


# its label; colour and label of a paid order that has one
_WORDS = {
    Progress.UNDER_WAY: (_("Processing"), OrderStatus.PENDING, _("Refund in progress")),
    Progress.DELAYED: (_("Delayed"), OrderStatus.PENDING, _("Refund delayed")),
    Progress.DONE: (_("Refunded"), OrderStatus.REFUNDED, _("Partly refunded")),
    Progress.REFUSED: (_("Declined"), OrderStatus.PAID, _("Paid, refund declined")),
}


@dataclass(frozen=True, slots=True)
class RefundView:
    refund: Refund

    @property
    def progress(self) -> Progress:
        """Progress; an open refund's message says that its provider did not carry it out."""
        if self.open:
            return Progress.DELAYED if self.refund.message else Progress.UNDER_WAY
        return Progress.DONE if self.refund.status == RefundStatus.SUCCEEDED else Progress.REFUSED

    @property
    def label(self) -> Any:
        if self.progress is Progress.UNDER_WAY and self.refund.status == RefundStatus.REQUESTED:
            return _("Requested")
        return _WORDS[self.progress][0]

    @property
    def badge_of_order(self) -> tuple[str, Any]:
        """Colour and label of the paid order in the history."""
        _own, colour, label = _WORDS[self.progress]
        return colour.value, label

    @property
    def is_of_wrong_amount(self) -> bool:
        """True if it returns a payment in another amount or currency than the order's."""
        anomaly = self.refund.anomaly
        return anomaly is not None and anomaly.kind == Anomaly.Kind.AMOUNT_MISMATCH

    @property
    def open(self) -> bool:
        """True while it may succeed or fail."""
        return self.refund.status in OPEN_REFUNDS

    @property
    def fingerprint(self) -> str:
        """Text that changes whenever the page would say something else of it."""
        return f"{self.refund.status}{'!' if self.refund.message else ''}"


@dataclass(frozen=True, slots=True)
class UncountedPayment:
    """A payment of another amount, late or second; without a `refund` a person decides."""

    anomaly: Anomaly
    refund: RefundView | None

    @property
    def is_second(self) -> bool:
        """True if the order was paid before."""
        return self.anomaly.kind == Anomaly.Kind.PAID_TWICE

    @property
    def is_late(self) -> bool:
        """True if the order was closed before."""
        return self.anomaly.kind == Anomaly.Kind.PAID_AFTER_CLOSE

    @property
    def progress(self) -> str:
        """Progress of its refund; else ``approval`` while a person decides, ``declined`` or empty."""
        if self.refund is not None:
            return self.refund.progress
        if self.open:
            return "approval"
        return "declined" if "approval" in self.anomaly.detail else ""

    @property
    def open(self) -> bool:
        """True while a person has to approve its refund."""
        return self.anomaly.needs_approval

    @property
    def fingerprint(self) -> str:
        return f"{self.anomaly.pk}{'' if self.refund else self.progress}"

    @property
    def amount_minor(self) -> int:
        return int(self.anomaly.detail["amount_minor"])

    @property
    def currency(self) -> str:
        """Currency, which may be another than the order's."""
        return str(self.anomaly.detail["currency"])


def refunds_of(payment: Payment) -> list[RefundView]:
    refunds = payment.refunds.select_related("anomaly", "payment").order_by("created_at", "id")
    return [RefundView(refund) for refund in refunds]


def badges_of(orders: Collection[Order]) -> dict[UUID, tuple[str, Any]]:
    """Map orders to colour and label of their status, or of a paid one's latest refund."""
    badges = {order.id: (order.status, order.get_status_display()) for order in orders}
    paid = [order.id for order in orders if order.status == OrderStatus.PAID]
    # not of payments that the order did not need
    refunds = Refund.objects.filter(payment__order_id__in=paid, anomaly__isnull=True).select_related("payment")
    for refund in refunds.order_by("created_at", "id"):
        badges[refund.payment.order_id] = RefundView(refund).badge_of_order
    return badges


def uncounted_payments(payment: Payment, refunds: list[RefundView]) -> list[UncountedPayment]:
    """List what came in and does not count, oldest first; `refunds` are all of the payment's."""
    by_policy = {one.refund.anomaly_id: one for one in refunds}
    # other anomalies of a payment are about its refunds or notifications
    filed = payment.anomalies.filter(detail__has_key="expected_minor").order_by("id")
    return [UncountedPayment(anomaly, by_policy.get(anomaly.pk)) for anomaly in filed]
