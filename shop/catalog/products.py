"""The catalogue: reading products, liking them, editing what stands in the shop window. No stock, no orders.

Reading is one statement. What the catalogue's page shows is in memory (`shop.catalog.window`), which edits are
told to. Liking is naturally idempotent: it sets a constant, so it needs no key however often or however parallel
it comes.
"""

from typing import Any

from django.db.models import F

from shop.catalog import window
from shop.catalog.window import Listing
from shop.errors import ProductNotFound
from shop.models import Like, Product

EDITABLE = frozenset({"name", "description", "picture", "price_minor", "currency", "flash_only"})


def list_products(*, user_id: int | None) -> list[Listing]:
    """The first `window.LIMIT` products, with `liked` (by `user_id`; None is a guest)."""
    return window.read(user_id=user_id)


def get_product(*, sku: str, user_id: int | None) -> Listing:
    """The product of `sku`, as in `list_products`.

    Raises:
        ProductNotFound: there is none.
    """
    found = window.read(user_id=user_id, sku=sku)
    if not found:
        raise ProductNotFound(sku)
    return found[0]


def like(*, sku: str, user_id: int) -> None:
    """Let `user_id` like the product; liking it already changes nothing.

    Raises:
        ProductNotFound: there is none.

    Transaction: one statement that the unique constraint arbitrates.
    """
    Like.objects.bulk_create([Like(user_id=user_id, product_id=_id_of(sku))], ignore_conflicts=True)


def unlike(*, sku: str, user_id: int) -> None:
    """Take the like of `user_id` away; having none changes nothing.

    Raises:
        ProductNotFound: there is none.

    Transaction: one statement.
    """
    Like.objects.filter(user_id=user_id, product_id=_id_of(sku)).delete()


def edit_product(*, product_id: int, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Change what the shop window says of a product; never its stock.

    Compared are the edited columns and not `version`, which every sale moves: an editor would lose to shoppers
    for ever.

    Args:
        product_id: primary key.
        before: the values that the editor saw, of the same columns as `after`.
        after: new values of some of name, description, picture, price_minor, currency and flash_only.

    Returns:
        False if another editor changed one of the columns in between; nothing was written then.

    Transaction: one statement; joins the caller's if there is one.
    """
    if unknown := (set(before) | set(after)) - EDITABLE:
        raise ValueError(f"not editable: {', '.join(sorted(unknown))}")
    changed = Product.objects.filter(pk=product_id, **before).update(**after, version=F("version") + 1)
    if changed:
        window.tell()
    return bool(changed)


def _id_of(sku: str) -> int:
    product_id = Product.objects.filter(sku=sku).values_list("pk", flat=True).first()
    if product_id is None:
        raise ProductNotFound(sku)
    return product_id
