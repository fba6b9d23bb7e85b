"""Refusals of the shop: problems with a stable `code`, shown by API and pages."""

from typing import Any, ClassVar

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from idempotency.errors import Problem
from payments.errors import PaymentRefused, ProviderError, ProviderRejected


class Refusal(Problem):
    """Base of the refusals; `name`, of what it is about, goes into sentence and document."""

    CODE: ClassVar[str]
    DETAIL: ClassVar[str]
    STATUS: ClassVar[int]
    MEMBER: ClassVar[str]  # of the document, for `name`

    def __init__(self, name: str = "") -> None:
        named: dict[str, Any] = {self.MEMBER: name} if name else {}
        super().__init__(self.STATUS, self.CODE, gettext(self.DETAIL).format(name=name), **named)


def _refusal(code: str, detail: str, *, status: int = 409, member: str = "sku") -> type[Refusal]:
    """Make the class that is called as its code: `SoldOut` of ``sold_out``."""
    name = code.title().replace("_", "")
    return type(name, (Refusal,), {"CODE": code, "DETAIL": detail, "STATUS": status, "MEMBER": member})


# also for a sku inside an order's items
ProductNotFound = _refusal("product_not_found", _("There is no product {name!r}."), status=404)
# another user's looks the same
OrderNotFound = _refusal("order_not_found", _("There is no such order of yours."), status=404)
OutOfStock = _refusal(
    "out_of_stock", _("There are not enough units of {name!r} left. Nothing was ordered; ask for fewer.")
)
MixedCurrency = _refusal("mixed_currency", _("All items of one order must be priced in one currency."))
OrderPaid = _refusal("order_paid", _("This order is already paid."))
OrderClosed = _refusal("order_closed", _("This order is closed and cannot be paid any more."))
PaymentBegun = _refusal("payment_begun", _("A payment of this order was opened, so its total is fixed."))
PreconditionRequired = _refusal(
    "precondition_required",
    _("Send If-Match with the ETag of the order that you read, so that no other change is overwritten."),
    status=428,
)
BasketFull = _refusal("basket_full", _("The basket holds as many products as an order may have."))
BasketChanged = _refusal(
    "basket_changed",
    _("The basket does not hold what its page showed. Nothing was ordered; look at it again."),
)
FlashSaleOnly = _refusal("flash_sale_only", _("{name!r} is sold in a flash sale only."))
FlashSaleNotFound = _refusal("flash_sale_not_found", _("There is no flash sale of {name!r}."), status=404)
FlashSaleNotRunning = _refusal("flash_sale_not_running", _("The flash sale of {name!r} has not begun or is over."))
SoldOut = _refusal("sold_out", _("The flash sale of {name!r} is sold out. Nothing was ordered."))
# the first order is not closed
AlreadyBought = _refusal(
    "already_bought", _("You have bought {name!r} in this flash sale already; each buyer may have one.")
)
CampaignNotFound = _refusal(
    "campaign_not_found", _("There is no coupon campaign {name!r}."), status=404, member="campaign"
)
NoneLeft = _refusal("none_left", _("All coupons of {name!r} have been drawn."), member="campaign")
# unknown, another user's, used, or one that takes nothing off; all look the same
CouponNotUsable = _refusal(
    "coupon_not_usable", _("The coupon {name!r} can't be used for this order."), member="coupon"
)


class VersionConflict(Problem):
    """A decision on an older version of the order."""

    def __init__(self, version: int) -> None:
        changed = gettext(
            "The order changed since you read it and is at version %(version)s now. Read it and decide again."
        )
        detail = changed % {"version": version}
        super().__init__(412, "version_conflict", detail, headers={"ETag": f'"{version}"'})


def from_payment(refused: PaymentRefused) -> Problem:
    """Return the problem for a refusal of the payments app, with its own code and sentence."""
    return Problem(409, refused.code, str(refused))


def from_provider(error: ProviderError) -> Problem:
    """Return the problem for a provider's failure; its message stays in our log."""
    if isinstance(error, ProviderRejected):
        detail = _("The payment provider refused this payment. Nothing was charged; try another channel.")
        return Problem(502, "provider_refused", detail)
    detail = _(
        "The payment provider cannot be reached at the moment. Nothing was charged; retry with the same key."
    )
    return Problem(503, "provider_unavailable", detail, headers={"Retry-After": "2"})
