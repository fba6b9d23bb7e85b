"""An order and its payment as its page shows them, with the shopper's next step.

Reads only. `Attempt.next_action` is the source for page and API, so they cannot disagree.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.utils import timezone

from idempotency.postgres.snapshot import snapshot
from payments.conf import config
from payments.models import Observation, Payment
from payments.money import is_above
from payments.providers.base import FactKind
from payments.states import AttemptStatus
from shop.models import Order, OrderStatus
from shop.orders import placing as orders
from shop.web.actions import Action, actions_of
from shop.web.forms import channel_name
from shop.web.refundview import Progress, RefundView, UncountedPayment, refunds_of, uncounted_payments


class Stage(StrEnum):
    """Panels of the page; exactly one is shown."""

    CHOOSE = "choose"  # nothing begun: choose a channel
    PAYING = "paying"  # an attempt is open: scan, or go on at the provider
    CHECKING = "checking"  # a provider's answer is missing
    CLOSING = "closing"  # cancelled or out of time, not yet closed at the provider
    PAID = "paid"
    CLOSED = "closed"
    REFUNDED = "refunded"


FINAL = frozenset({Stage.PAID, Stage.CLOSED, Stage.REFUNDED})


@dataclass(frozen=True, slots=True)
class OrderView:
    """An order as its page shows it.

    Attributes:
        action: to go on with, if any: the one asked for, else the newest.
        newest: the newest action.
        open_attempts: number of attempts that may still be paid.
        refunds: of the payment, oldest first.
        uncounted: payments that came in and do not count.
        refunded_minor: given back of what the order was paid with, also in the provider's own pages.
        refundable_minor: as of `Payment`.
        charge: the payment that counts, as its provider reported it; None until there is one.
    """

    order: Order
    stage: Stage
    action: Action | None
    newest: Action | None
    payment_version: int | None
    open_attempts: int
    refunds: list[RefundView]
    uncounted: list[UncountedPayment]
    refunded_minor: int
    refundable_minor: int
    charge: Observation | None

    @property
    def paid_with(self) -> Any:
        return channel_name(self.charge.channel) if self.charge else ""

    @property
    def refundable(self) -> bool:
        """True if the form that requests a refund is shown."""
        return self.stage is Stage.PAID and self.refundable_minor > 0

    @property
    def state(self) -> str:
        """Text that changes whenever the page would look different; it means nothing else."""
        parts = [
            self.stage,
            str(self.order.version),
            str(self.payment_version or ""),
            self.newest.attempt.out_trade_no if self.newest else "",
            *(one.fingerprint for one in self.refunds),
            *(one.fingerprint for one in self.uncounted),
        ]
        if self.stage in FINAL and self.open_attempts:
            parts.append(f"{self.open_attempts} open")
        return "-".join(parts)

    @property
    def minutes_left(self) -> int:
        return max(0, int((self.order.expires_at - timezone.now()).total_seconds()) // 60)

    @property
    def order_refunds(self) -> list[RefundView]:
        return [one for one in self.refunds if not one.refund.anomaly_id]

    @property
    def kept_minor(self) -> int:
        """Amount that the order was paid with, less what has gone back."""
        return self.order.total_minor - self.refunded_minor

    @property
    def going_back(self) -> bool:
        """True if open refunds return all that is left of what the order was paid with."""
        open_minor = sum(one.refund.amount_minor for one in self.order_refunds if one.open)
        # more than is left, where the provider's own pages returned a part meanwhile
        return self.stage is Stage.PAID and 0 < self.kept_minor <= open_minor

    @property
    def delayed(self) -> bool:
        """True if the provider has not carried out a refund of what the order was paid with."""
        return any(one.progress is Progress.DELAYED for one in self.order_refunds)

    @property
    def charged_once(self) -> bool:
        """True if no other payment has come in, and none can."""
        return not self.uncounted and not self.open_attempts

    @property
    def late_refund_is_automatic(self) -> bool:
        """True if a payment that comes after all goes back without a person's approval."""
        return not is_above(config().refunds.approve_above, self.order.total_minor, self.order.currency)

    @property
    def timed_out(self) -> bool:
        """True if its time was over before it was closed; else somebody cancelled it."""
        return self.order.closing_at is None or self.order.closing_at >= self.order.expires_at

    @property
    def final(self) -> bool:
        """True if nothing more can come, so that the page may stop polling."""
        may_change = [one.open for one in self.refunds] + [one.open for one in self.uncounted]
        return self.stage in FINAL and not self.open_attempts and not any(may_change)

    @property
    def payable(self) -> bool:
        """True if the form that chooses a channel is shown."""
        return self.stage in {Stage.CHOOSE, Stage.PAYING, Stage.CHECKING}

    @property
    def takes_coupon(self) -> bool:
        """True if a coupon may still lower the total."""
        return self.stage is Stage.CHOOSE and self.payment_version is None and not self.order.discount_minor

    @property
    def panel(self) -> str:
        return f"shop/stage/{self.stage}.html"

    @property
    def chosen(self) -> str:
        """Channel of the open attempt; empty if there is none."""
        return self.action.attempt.channel if self.action else ""

    @property
    def step(self) -> int:
        """Number of the current step in "ordered, pay, done", from 1."""
        return 3 if self.stage in {Stage.PAID, Stage.REFUNDED} else 2


@snapshot()
def view_of(*, order_id: UUID, user_id: int, by: str = "") -> OrderView:
    """Read the user's order and its payment as they were at one moment.

    Args:
        by: ``channel.method`` of the open attempt to show, the method may be left out; empty: the newest.

    Raises:
        OrderNotFound: there is none, or it is another user's.
    """
    order = orders.get_order(order_id=order_id, user_id=user_id)
    payment = Payment.objects.filter(order_id=order_id).first()
    attempts = list(payment.attempts.order_by("id")) if payment else []
    refunds = refunds_of(payment) if payment else []
    actions = actions_of(attempts)
    newest = actions[-1] if actions else None
    wanted = [
        action for action in actions if by and f"{action.attempt.channel}.{action.attempt.method}".startswith(by)
    ]
    uncertain = any(attempt.status == AttemptStatus.UNCERTAIN for attempt in attempts)
    return OrderView(
        order=order,
        stage=_stage(order, action=newest, uncertain=uncertain),
        action=wanted[-1] if wanted else newest,
        newest=newest,
        payment_version=payment.version if payment else None,
        open_attempts=sum(attempt.is_live for attempt in attempts),
        refunds=refunds,
        uncounted=uncounted_payments(payment, refunds) if payment else [],
        refunded_minor=payment.refunded_minor if payment else 0,
        refundable_minor=payment.refundable_minor if payment else 0,
        charge=charge_of(payment) if payment and payment.paid_minor else None,
    )


def charge_of(payment: Payment) -> Observation | None:
    """Read the charge that counts for the payment, with the provider's number of it."""
    return Observation.objects.filter(attempt__payment=payment, kind=FactKind.PAID, credited=True).first()


def _stage(order: Order, *, action: Action | None, uncertain: bool) -> Stage:
    if order.status != OrderStatus.PENDING:
        return Stage(order.status)
    if order.closing_at or order.expires_at <= timezone.now():
        return Stage.CLOSING
    if action:
        return Stage.PAYING
    return Stage.CHECKING if uncertain else Stage.CHOOSE
