"""Refusals of the shop: problems with a stable `code`, raised by the domain modules, shown by API and pages."""

from typing import Any, ClassVar

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from idempotency.errors import Problem
from payments.errors import PaymentRefused, ProviderError, ProviderRejected


class Refusal(Problem):
    """Base of the refusals; a subclass names its code, sentence and status.

    Args:
        name: of the thing it is about, put into the sentence and the document.
    """

    CODE: ClassVar[str]
    DETAIL: ClassVar[str]
    STATUS: ClassVar[int] = 409
    MEMBER: ClassVar[str] = "sku"  # of the document, for `name`

    def __init__(self, name: str = "") -> None:
        named: dict[str, Any] = {self.MEMBER: name} if name else {}
        super().__init__(self.STATUS, self.CODE, gettext(self.DETAIL).format(name=name), **named)


class ProductNotFound(Refusal):
    """No product of that sku; also for a sku inside an order's items."""

    STATUS, CODE, DETAIL = 404, "product_not_found", _("There is no product {name!r}.")


class OrderNotFound(Refusal):
    """No such order of this user; another user's looks the same."""

    STATUS, CODE, DETAIL = 404, "order_not_found", _("There is no such order of yours.")


class OutOfStock(Refusal):
    CODE = "out_of_stock"
    DETAIL = _("There are not enough units of {name!r} left. Nothing was ordered; ask for fewer.")


class FlashSaleOnly(Refusal):
    CODE, DETAIL = "flash_sale_only", _("{name!r} is sold in a flash sale only.")


class SoldOut(Refusal):
    CODE, DETAIL = "sold_out", _("The flash sale of {name!r} is sold out. Nothing was ordered.")


class AlreadyBought(Refusal):
    """A second unit for one buyer, whose first order is not closed."""

    CODE = "already_bought"
    DETAIL = _("You have bought {name!r} in this flash sale already; each buyer may have one.")


class FlashSaleNotRunning(Refusal):
    CODE, DETAIL = "flash_sale_not_running", _("The flash sale of {name!r} has not begun or is over.")


class FlashSaleNotFound(Refusal):
    STATUS, CODE, DETAIL = 404, "flash_sale_not_found", _("There is no flash sale of {name!r}.")


class CampaignNotFound(Refusal):
    STATUS, MEMBER = 404, "campaign"
    CODE, DETAIL = "campaign_not_found", _("There is no coupon campaign {name!r}.")


class NoneLeft(Refusal):
    MEMBER = "campaign"
    CODE, DETAIL = "none_left", _("All coupons of {name!r} have been drawn.")


class CouponNotUsable(Refusal):
    """Unknown, another user's, used, or one that takes nothing off; all look the same."""

    MEMBER = "coupon"
    CODE, DETAIL = "coupon_not_usable", _("The coupon {name!r} can't be used for this order.")


class PaymentBegun(Refusal):
    CODE, DETAIL = "payment_begun", _("A payment of this order was opened, so its total is fixed.")


class MixedCurrency(Refusal):
    CODE, DETAIL = "mixed_currency", _("All items of one order must be priced in one currency.")


class BasketFull(Refusal):
    CODE, DETAIL = "basket_full", _("The basket holds as many products as an order may have.")


class BasketChanged(Refusal):
    CODE = "basket_changed"
    DETAIL = _("The basket does not hold what its page showed. Nothing was ordered; look at it again.")


class OrderPaid(Refusal):
    CODE, DETAIL = "order_paid", _("This order is already paid.")


class OrderClosed(Refusal):
    CODE, DETAIL = "order_closed", _("This order is closed and cannot be paid any more.")


class PreconditionRequired(Refusal):
    STATUS, CODE = 428, "precondition_required"
    DETAIL = _("Send If-Match with the ETag of the order that you read, so that no other change is overwritten.")


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
    """Return the problem for a provider's failure. Its own words stay in our log: they are not for shoppers."""
    if isinstance(error, ProviderRejected):
        detail = _("The payment provider refused this payment. Nothing was charged; try another channel.")
        return Problem(502, "provider_refused", detail)
    detail = _(
        "The payment provider cannot be reached at the moment. Nothing was charged; retry with the same key."
    )
    return Problem(503, "provider_unavailable", detail, headers={"Retry-After": "2"})
