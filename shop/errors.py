"""The shop's refusals: problems with a stable `code`, raised by the domain modules, shown by API and pages.

================================ ====== ==============================================================
code                             status when
================================ ====== ==============================================================
`product_not_found`              404    no product of that sku; also for a sku inside an order's items
`order_not_found`                404    no such order, or another user's
`out_of_stock`                   409    fewer units left than asked for; nothing was taken
`flash_sale_only`                409    the product is sold in flash sales alone
`sold_out`                       409    a flash sale has no unit left
`already_bought`                 409    the buyer has had this flash sale's one unit; its order is not closed
`flash_sale_not_running`         409    the product's flash sale has not begun, or is over
`flash_sale_not_found`           404    the product has no flash sale, or there is no such product
`campaign_not_found`             404    no coupon campaign of that name
`none_left`                      409    every coupon of the campaign has been drawn
`mixed_currency`                 409    the items are priced in different currencies
`basket_full`                    409    the basket holds as many products as an order may have
`basket_changed`                 409    the basket does not hold any more what its page showed; nothing was ordered
`order_paid`                     409    the order is already paid (or was, and is refunded)
`order_closed`                   409    the order is closed, closing or past its time
`channel_unavailable`            409    the payment channel is not set up here
`method_unavailable`             409    the payment channel has no such method
`version_conflict`               412    `If-Match` names an older version
`precondition_required`          428    `If-Match` is missing
`provider_refused`               502    the payment provider refused to open the payment
`provider_unavailable`           503    the payment provider cannot be reached; nothing happened there
================================ ====== ==============================================================
"""

from idempotency.errors import Problem
from payments.errors import PaymentRefused, ProviderError, ProviderRejected


class ProductNotFound(Problem):
    """No product of that sku."""

    def __init__(self, sku: str) -> None:
        super().__init__(404, "product_not_found", f"There is no product {sku!r}.", sku=sku)


class OrderNotFound(Problem):
    """No such order for this user; whether it exists for another is not told."""

    def __init__(self) -> None:
        super().__init__(404, "order_not_found", "There is no such order of yours.")


class OutOfStock(Problem):
    """Fewer units left than asked for."""

    def __init__(self, sku: str) -> None:
        detail = f"There are not enough units of {sku!r} left. Nothing was ordered; ask for fewer."
        super().__init__(409, "out_of_stock", detail, sku=sku)


class FlashSaleOnly(Problem):
    """An ordinary order for a product of a flash sale."""

    def __init__(self, sku: str) -> None:
        super().__init__(409, "flash_sale_only", f"{sku!r} is sold in a flash sale only.", sku=sku)


class SoldOut(Problem):
    """No unit of the flash sale is left for this buyer."""

    def __init__(self, sku: str) -> None:
        super().__init__(409, "sold_out", f"The flash sale of {sku!r} is sold out. Nothing was ordered.", sku=sku)


class AlreadyBought(Problem):
    """One unit a buyer."""

    def __init__(self, sku: str) -> None:
        detail = f"You have bought {sku!r} in this flash sale already; each buyer may have one."
        super().__init__(409, "already_bought", detail, sku=sku)


class FlashSaleNotRunning(Problem):
    """Before the beginning or after the end."""

    def __init__(self, sku: str) -> None:
        detail = f"The flash sale of {sku!r} has not begun or is over."
        super().__init__(409, "flash_sale_not_running", detail, sku=sku)


class FlashSaleNotFound(Problem):
    """No flash sale of that product."""

    def __init__(self, sku: str) -> None:
        super().__init__(404, "flash_sale_not_found", f"There is no flash sale of {sku!r}.", sku=sku)


class CampaignNotFound(Problem):
    """No campaign of that name."""

    def __init__(self, slug: str) -> None:
        super().__init__(404, "campaign_not_found", f"There is no coupon campaign {slug!r}.", campaign=slug)


class NoneLeft(Problem):
    """Every coupon is drawn."""

    def __init__(self, slug: str) -> None:
        super().__init__(409, "none_left", f"All coupons of {slug!r} have been drawn.", campaign=slug)


class MixedCurrency(Problem):
    """Items of one order priced in different currencies."""

    def __init__(self) -> None:
        super().__init__(409, "mixed_currency", "All items of one order must be priced in one currency.")


class BasketFull(Problem):
    """One product more than an order may have."""

    def __init__(self, sku: str) -> None:
        super().__init__(409, "basket_full", "The basket holds as many products as an order may have.", sku=sku)


class BasketChanged(Problem):
    """The page showed units that are not in the basket any more."""

    def __init__(self) -> None:
        detail = "The basket does not hold what its page showed. Nothing was ordered; look at it again."
        super().__init__(409, "basket_changed", detail)


class OrderPaid(Problem):
    """What was asked is impossible because the order is paid."""

    def __init__(self) -> None:
        super().__init__(409, "order_paid", "This order is already paid.")


class OrderClosed(Problem):
    """What was asked is impossible because the order is closed, or on its way there."""

    def __init__(self) -> None:
        super().__init__(409, "order_closed", "This order is closed and cannot be paid any more.")


class VersionConflict(Problem):
    """The caller decided on an older version of the order than the current one."""

    def __init__(self, version: int) -> None:
        super().__init__(
            412,
            "version_conflict",
            f"The order changed since you read it and is at version {version} now. Read it again and decide anew.",
            headers={"ETag": f'"{version}"'},
        )


class PreconditionRequired(Problem):
    """A conditional call came without its condition."""

    def __init__(self) -> None:
        detail = "Send If-Match with the ETag of the order that you read, so that no other change is overwritten."
        super().__init__(428, "precondition_required", detail)


def from_payment(refused: PaymentRefused) -> Problem:
    """The problem that answers a refusal of the payments app; its own code and sentence."""
    return Problem(409, refused.code, str(refused) or (type(refused).__doc__ or "").strip())


def from_provider(error: ProviderError) -> Problem:
    """The problem that answers a provider's failure. Its own words stay in our log: they are not for shoppers."""
    if isinstance(error, ProviderRejected):
        return Problem(
            502,
            "provider_refused",
            "The payment provider refused this payment. Nothing was charged; try another channel.",
        )
    return Problem(
        503,
        "provider_unavailable",
        "The payment provider cannot be reached at the moment. Nothing was charged; retry with the same key.",
        headers={"Retry-After": "2"},
    )
