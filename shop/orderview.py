"""What the order page shows: an order and its payment, read once and reduced to the shopper's next step.

Reads only; the payments app's own JSON is the source, so the page and the API cannot tell different stories.
"""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import segno
from django.conf import settings
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

from payments.models import Payment
from payments.providers.base import NextActionType
from payments.serializers import represent_payment
from shop import orders
from shop.models import Order, OrderItem, OrderStatus

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
    out_trade_no: str
    type: NextActionType
    url: str

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
class OrderView:
    """An order as its page shows it."""

    order: Order
    items: list[OrderItem]
    stage: Stage
    state: str
    action: Action | None
    minutes_left: int

    @property
    def final(self) -> bool:
        """Whether the page may stop asking."""
        return self.stage in FINAL

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


def view_of(*, order_id: UUID, user_id: int) -> OrderView:
    """Read the user's order and its payment.

    Raises:
        OrderNotFound: there is none, or it is another user's.
    """
    order = orders.get_order(order_id=order_id, user_id=user_id)
    payment = Payment.objects.filter(order_id=order_id).first()
    action, uncertain = _attempts_of(payment)
    stage = _stage(order, action=action, uncertain=uncertain)
    return OrderView(
        order=order,
        items=list(order.items.all()),
        stage=stage,
        # changes whenever the page would look different; means nothing else
        state="-".join(
            [
                stage,
                str(order.version),
                str(payment.version) if payment else "",
                action.out_trade_no if action else "",
            ]
        ),
        action=action,
        minutes_left=max(0, int((order.expires_at - timezone.now()).total_seconds()) // 60),
    )


def _attempts_of(payment: Payment | None) -> tuple[Action | None, bool]:
    """The newest attempt that the shopper can go on with, and whether any attempt's outcome is missing."""
    if payment is None:
        return None, False
    document = represent_payment(payment)
    action = None
    for attempt in document["attempts"]:
        told = attempt["next_action"]
        # a page inside the wallet goes on by its own script, not by ours
        if attempt["status"] == "pending" and told and told["type"] != NextActionType.JSAPI:
            action = Action(
                channel=attempt["channel"],
                out_trade_no=attempt["out_trade_no"],
                type=NextActionType(told["type"]),
                url=told["url"],
            )
    uncertain = any(attempt["status"] == "uncertain" for attempt in document["attempts"])
    return action, uncertain


def _stage(order: Order, *, action: Action | None, uncertain: bool) -> Stage:
    if order.status != OrderStatus.PENDING:
        return Stage(order.status)
    if order.closing_at or order.expires_at <= timezone.now():
        return Stage.CLOSING
    if action:
        return Stage.PAYING
    return Stage.CHECKING if uncertain else Stage.CHOOSE
