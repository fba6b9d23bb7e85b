"""What the order page shows: an order and its payment, read once and reduced to the shopper's next step.

Reads only; the payments app's own JSON is the source, so the page and the API cannot tell different stories.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import segno
from django.conf import settings
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _

from payments.api.serializers import represent_attempt
from payments.models import Attempt, Payment, Refund
from payments.providers.base import NextActionType
from payments.states import AttemptStatus
from shop.models import Order, OrderItem, OrderStatus
from shop.orders import placing as orders
from shop.web.refundview import NotTaken, RefundView, Standing, not_taken_of, refunds_of

PAGE_SIZE = 20  # orders on a page of the history


class Stage(StrEnum):
    """The panels of the page; exactly one is shown."""

    CHOOSE = "choose"  # nothing begun: choose a channel
    PAYING = "paying"  # an attempt is open: scan, or go on at the provider
    CHECKING = "checking"  # a provider's answer is missing
    CLOSING = "closing"  # cancelled or out of time, not yet closed at the provider
    PAID = "paid"
    CLOSED = "closed"
    REFUNDED = "refunded"


FINAL = frozenset({Stage.PAID, Stage.CLOSED, Stage.REFUNDED})


@dataclass(frozen=True, slots=True)
class Action:
    """The open attempt that the shopper should go on with."""

    channel: str
    method: str
    out_trade_no: str
    type: NextActionType
    url: str
    expires_at: datetime | None

    @property
    def by_form(self) -> bool:
        """Whether the way on leads through us, who get a fresh code or link where this one is over."""
        if self.expires_at is None:
            return False
        # a link is not followed before it is pressed, which may be long after the page was drawn
        return self.expires_at <= timezone.now() if self.is_qr_code else True

    @property
    def is_qr_code(self) -> bool:
        """Whether `url` is to be scanned, not followed."""
        return self.type is NextActionType.QR_CODE

    @property
    def qr_svg(self) -> SafeString:
        """`url` as a QR code without any script, style or outside file."""
        drawn = segno.make(self.url, error="m", micro=False).svg_inline(border=0, omitsize=True, svgclass="qr")
        return mark_safe(drawn)  # noqa: S308 - segno writes paths only, never the text

    @property
    def sandbox_url(self) -> str:
        """The sandbox's pretended phone for this QR code; empty where the channels are real."""
        if settings.SANDBOX_URL and self.url.startswith(f"{settings.SANDBOX_URL}/"):
            return self.url  # the code itself leads there
        prepay = parse_qs(urlsplit(self.url).query).get("pr", [""])[0]
        if not settings.SANDBOX_URL or self.channel != "wechat" or not prepay:
            return ""
        return f"{settings.SANDBOX_URL}/wechat/scan?pr={quote(prepay, safe='')}"


@dataclass(frozen=True, slots=True)
class Row:
    """An order in the history.

    Attributes:
        badge: what its colour is called.
        words: where it stands; a refund that is on its way or was partial counts more than the status.
    """

    order: Order
    badge: str
    words: Any


@dataclass(frozen=True, slots=True)
class OrderView:
    """An order as its page shows it.

    Attributes:
        state: changes whenever the page would look different; means nothing else.
        newest: whether `action` is the newest one, which is shown where nobody asks for another.
        open_attempts: how many may still be paid.
        not_taken: payments that came in and do not count.
        refundable_minor: what was paid and is neither back nor on its way back.
    """

    order: Order
    items: list[OrderItem]
    stage: Stage
    state: str
    action: Action | None
    newest: bool
    minutes_left: int
    open_attempts: int
    refunds: list[RefundView]
    not_taken: list[NotTaken]
    refundable_minor: int

    @property
    def asked_back(self) -> list[RefundView]:
        """Refunds of what the order was paid with."""
        return [one for one in self.refunds if not one.refund.anomaly_id]

    @property
    def going_back(self) -> bool:
        """Whether all that the order was paid with is asked back."""
        return self.stage is Stage.PAID and not self.refundable_minor

    @property
    def delayed(self) -> bool:
        """Whether a refund of what the order was paid with is not carried out by its provider."""
        return any(one.standing is Standing.DELAYED for one in self.asked_back)

    @property
    def charged_once(self) -> bool:
        """Whether no other payment has come in, and none may."""
        return not self.not_taken and not self.open_attempts

    @property
    def timed_out(self) -> bool:
        """Whether its time was over before it was closed; else somebody cancelled it."""
        return self.order.closing_at is None or self.order.closing_at >= self.order.expires_at

    @property
    def final(self) -> bool:
        """Whether nothing more can come, so that the page may stop asking."""
        return self.stage in FINAL and not self.open_attempts and not any(one.open for one in self.refunds)

    @property
    def payable(self) -> bool:
        """Whether the form that chooses a channel is shown."""
        return self.stage in {Stage.CHOOSE, Stage.PAYING, Stage.CHECKING}

    @property
    def panel(self) -> str:
        """Template of the panel for the stage."""
        return f"shop/stage/{self.stage}.html"

    @property
    def chosen(self) -> str:
        """Channel of the open attempt; empty if there is none."""
        return self.action.channel if self.action else ""

    @property
    def step(self) -> int:
        """Position in "ordered, pay, done", from 1."""
        return 3 if self.stage in {Stage.PAID, Stage.REFUNDED} else 2


def view_of(*, order_id: UUID, user_id: int, by: str = "") -> OrderView:
    """Read the user's order and its payment.

    Args:
        order_id: which order.
        user_id: whose.
        by: ``channel.method`` of the open attempt to show, the method may be left out; else the newest is.

    Raises:
        OrderNotFound: there is none, or it is another user's.
    """
    order = orders.get_order(order_id=order_id, user_id=user_id)
    payment = Payment.objects.filter(order_id=order_id).first()
    attempts = list(payment.attempts.order_by("id")) if payment else []
    actions = _actions(attempts)
    newest = actions[-1] if actions else None
    named = [action for action in actions if by and f"{action.channel}.{action.method}".startswith(by)]
    uncertain = any(attempt.status == AttemptStatus.UNCERTAIN for attempt in attempts)
    stage = _stage(order, action=newest, uncertain=uncertain)
    open_attempts = sum(attempt.is_live for attempt in attempts)
    refunds = refunds_of(payment) if payment else []
    not_taken = not_taken_of(payment, refunds) if payment else []
    return OrderView(
        order=order,
        items=order.lines,
        stage=stage,
        state="-".join(
            [
                stage,
                str(order.version),
                str(payment.version) if payment else "",
                newest.out_trade_no if newest else "",
                *(one.state for one in refunds),
                *(str(one.anomaly.pk) for one in not_taken),
                *([f"{open_attempts} open"] if stage in FINAL and open_attempts else []),
            ]
        ),
        action=named[-1] if named else newest,
        newest=not named or named[-1] is newest,
        minutes_left=max(0, int((order.expires_at - timezone.now()).total_seconds()) // 60),
        open_attempts=open_attempts,
        refunds=refunds,
        not_taken=not_taken,
        refundable_minor=payment.paid_minor - payment.refunded_minor - payment.reserved_minor if payment else 0,
    )


def rows_of(shown: Sequence[Order]) -> list[Row]:
    """The orders as the history shows them."""
    # of what the order was paid with; a payment that it did not need goes back without its history
    refunds = Refund.objects.filter(payment__order_id__in=[order.id for order in shown], anomaly__isnull=True)
    asked = refunds.select_related("payment").order_by("created_at", "id")
    newest = {refund.payment.order_id: RefundView(refund) for refund in asked}
    return [_row(order, newest.get(order.id)) for order in shown]


def _row(order: Order, refund: RefundView | None) -> Row:
    if refund is None or order.status != OrderStatus.PAID:
        return Row(order, order.status, order.get_status_display())
    match refund.standing:
        case Standing.UNDER_WAY:
            return Row(order, OrderStatus.PENDING.value, _("Refund on its way"))
        case Standing.DELAYED:
            return Row(order, OrderStatus.PENDING.value, _("Refund delayed"))
        case Standing.REFUSED:
            return Row(order, order.status, _("Paid, refund refused"))
        case Standing.DONE:
            return Row(order, OrderStatus.REFUNDED.value, _("Partly refunded"))


def _actions(attempts: Sequence[Attempt]) -> list[Action]:
    """What the shopper can go on with, oldest first."""
    shown = [(represent_attempt(row), row.next_action_expires_at) for row in attempts]
    return [
        Action(
            channel=attempt["channel"],
            method=attempt["method"],
            out_trade_no=attempt["out_trade_no"],
            type=NextActionType(attempt["next_action"]["type"]),
            url=attempt["next_action"]["url"],
            expires_at=expires_at,
        )
        for attempt, expires_at in shown
        # a page inside the wallet goes on by its own script, not by ours
        if attempt["status"] == "pending"
        and attempt["next_action"]
        and attempt["next_action"]["type"] != NextActionType.JSAPI
    ]


def _stage(order: Order, *, action: Action | None, uncertain: bool) -> Stage:
    if order.status != OrderStatus.PENDING:
        return Stage(order.status)
    if order.closing_at or order.expires_at <= timezone.now():
        return Stage.CLOSING
    if action:
        return Stage.PAYING
    return Stage.CHECKING if uncertain else Stage.CHOOSE
