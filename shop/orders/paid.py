"""The paid mark: a repeat of paying an order that is paid is refused without asking the database.

Only a hint, put after the database has refused once. It names the owner, so another user still hears 404; and it
cannot become untrue, because a paid order never becomes payable again. Without it the database refuses as well.
"""

from uuid import UUID

from idempotency.redis.paid_marker import PaidMarker

_PAID = PaidMarker(kind="order-paid")


def remember_paid(*, order_id: UUID, user_id: int) -> None:
    """The database says that this order of this user is paid."""
    _PAID.put(order_id.hex, str(user_id))


def known_paid(*, order_id: UUID, user_id: int) -> bool:
    """Whether that is remembered; False says nothing."""
    return _PAID.get(order_id.hex) == str(user_id)
