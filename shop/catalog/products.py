"""Products: reading, liking, editing texts and prices. Never stock, never orders.

Liking sets a constant, so it is idempotent without a key, however often or concurrently it comes.
"""

from typing import Any

from django.db.models import F

from shop.catalog import cache
from shop.catalog.listings import Listing, read_listings
from shop.errors import ProductNotFound
from shop.models import Like, Product


def list_products(*, user_id: int | None) -> list[Listing]:
    """Read the first `listings.LIMIT` products, with `liked` by this user; None is a guest."""
    return read_listings(user_id=user_id)


def get_product(*, sku: str, user_id: int | None) -> Listing:
    """Read one product, as `list_products` does. Raises ProductNotFound: no such sku."""
    found = read_listings(user_id=user_id, sku=sku)
    if not found:
        raise ProductNotFound(sku)
    return found[0]


def like(*, sku: str, user_id: int) -> None:
    """Let the user like the product; again changes nothing. Raises ProductNotFound.

    Transaction: one statement, arbitrated by the unique constraint.
    """
    Like.objects.bulk_create([Like(user_id=user_id, product_id=_id_of(sku))], ignore_conflicts=True)


def unlike(*, sku: str, user_id: int) -> None:
    """Remove the user's like, if any, in one statement. Raises ProductNotFound: no such sku."""
    Like.objects.filter(user_id=user_id, product_id=_id_of(sku)).delete()


def edit_product(*, product_id: int, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Change the texts and price of a product; never its stock.

    Compares the edited columns and not `version`, which every sale moves: shoppers would always win.

    Args:
        before: the values that the editor saw, of the same columns as `after`.
        after: new values of some of its texts, picture, price, currency and `flash_only`.

    Returns:
        False if another editor changed one of the columns in between; nothing was written then.

    Transaction: one statement; joins the caller's if there is one.
    """
    changed = Product.objects.filter(pk=product_id, **before).update(**after, version=F("version") + 1)
    if changed:
        cache.publish_change()
    return bool(changed)


def _id_of(sku: str) -> int:
    product_id = Product.objects.filter(sku=sku).values_list("pk", flat=True).first()
    if product_id is None:
        raise ProductNotFound(sku)
    return product_id
