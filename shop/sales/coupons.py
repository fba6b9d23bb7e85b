"""Coupons: a user draws one of a campaign, no code goes to two, and an order takes one.

The only writer of campaigns and coupons.

A draw locks the first free row that is not locked (`FOR UPDATE SKIP LOCKED`), so concurrent draws take different
rows and do not wait for each other. A second draw returns the first one's code: unique (campaign, drawn by)
arbitrates.

A draw that finds no free row waits for the locked ones, in the order of their keys, and holds no lock by then:
PostgreSQL locks a row, then checks that its newest version is free, and keeps the lock if not, which was a
deadlock between those who came too late.

Lock order of `use`: the order's row, then the coupon's.
"""

import secrets
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from idempotency.postgres.statements import broken_constraint
from payments.providers.documents import is_keepable
from shop.errors import CampaignNotFound, CouponNotUsable, NoneLeft
from shop.models import Campaign, Coupon, OrderStatus
from shop.orders import placing as orders

ONCE_A_USER = "coupon_once_a_campaign_and_user"
# no 0, O, 1 and I, which people mix up; 12 of 32 are 60 bits, which nobody guesses
ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
CODE_LENGTH = 12


def draw(*, slug: str, user_id: int) -> Coupon:
    """Give the user a coupon of the campaign, or the one already drawn.

    Raises:
        CampaignNotFound: there is none of that name.
        NoneLeft: every coupon has been drawn; a draw under way is waited for.

    Transaction: needs the caller's; the coupon's row is locked until it ends. No network.
    """
    campaign_id = Campaign.objects.filter(slug=slug).values_list("pk", flat=True).first()
    if campaign_id is None:
        raise CampaignNotFound(slug)
    if (mine := _drawn(campaign_id, user_id)) is not None:
        return mine
    free = Coupon.objects.filter(campaign=campaign_id, drawn_by__isnull=True).order_by("pk")
    try:
        # the second look waits for the draws under way: one that rolls back leaves its coupon to us
        coupon = _take(free.select_for_update(skip_locked=True, no_key=True), user_id) or _take(
            free.select_for_update(no_key=True), user_id
        )
    except IntegrityError as error:
        if broken_constraint(error) != ONCE_A_USER:
            raise
        coupon = None
    coupon = coupon or _drawn(campaign_id, user_id)  # another call of the user was faster, perhaps to the last one
    if coupon is None:
        raise NoneLeft(slug)
    return coupon


def usable(*, user_id: int) -> QuerySet[Coupon, Coupon]:
    """Select the user's coupons that an order of theirs may still take, with their campaigns."""
    free = Q(order__isnull=True) | Q(order__status=OrderStatus.CLOSED)
    mine = Coupon.objects.filter(free, drawn_by=user_id, campaign__percent_off__gt=0)
    return mine.select_related("campaign")


def drawn(*, user_id: int) -> QuerySet[Coupon, Coupon]:
    """Select all coupons of the user, with campaign and order; the caller must bound it."""
    return Coupon.objects.filter(drawn_by=user_id).select_related("campaign", "order")


def use(*, code: str, order_id: UUID, user_id: int) -> None:
    """Lower the user's unpaid order by their coupon; again changes nothing.

    Raises:
        OrderNotFound, OrderPaid, OrderClosed: as `placing.lock_payable`.
        CouponNotUsable: not theirs, used for another order, this one has another, or it would take nothing off.
        PaymentBegun: the order's total is fixed.

    Transaction: needs the caller's; the order's and the coupon's rows are locked until it ends. No network.
    """
    order = orders.lock_payable(order_id=order_id, user_id=user_id)
    if not is_keepable(code, most=32):  # no column could hold it
        raise CouponNotUsable(code)
    coupon = Coupon.objects.select_for_update(no_key=True).filter(code=code, drawn_by=user_id).first()
    if coupon is not None and coupon.order_id == order_id:
        return
    # a statement of its own, which sees the order that held the coupon while we waited for the lock
    if coupon is None or not usable(user_id=user_id).filter(pk=coupon.pk).exists():
        raise CouponNotUsable(code)
    if Coupon.objects.filter(order=order_id).exists():
        raise CouponNotUsable(code)
    if not orders.take_off(order=order, percent=coupon.campaign.percent_off):
        raise CouponNotUsable(code)
    Coupon.objects.filter(pk=coupon.pk).update(order=order)


def open_campaign(*, slug: str, name: str, count: int, percent_off: int = 0, name_zh: str = "") -> bool:
    """Make a campaign with `count` codes, in the caller's transaction; False if it is there."""
    texts = {"name": name, "name_zh": name_zh}
    campaign, created = Campaign.objects.get_or_create(slug=slug, defaults={**texts, "percent_off": percent_off})
    if created:
        Coupon.objects.bulk_create([Coupon(campaign=campaign, code=new_code()) for _ in range(count)], 1000)
    return created


def new_code() -> str:
    """Make a code that cannot be guessed: `XXXX-XXXX-XXXX`."""
    code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
    return "-".join(code[start : start + 4] for start in range(0, CODE_LENGTH, 4))


def _take(free: QuerySet[Coupon, Coupon], user_id: int) -> Coupon | None:
    """Take the first of them; in vain, release what was locked on the way."""
    with transaction.atomic():
        coupon = free.first()
        if coupon is None:
            transaction.set_rollback(True)
            return None
        coupon.drawn_by_id, coupon.drawn_at = user_id, timezone.now()
        coupon.save(update_fields=["drawn_by", "drawn_at"])
    return coupon


def _drawn(campaign_id: int, user_id: int) -> Coupon | None:
    return Coupon.objects.filter(campaign=campaign_id, drawn_by=user_id).first()
