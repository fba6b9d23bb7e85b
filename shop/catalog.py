"""The catalogue: reading products, liking them, editing what stands in the shop window. No stock, no orders.

Liking is naturally idempotent: it sets a constant, so it needs no key however often or however parallel it comes.
"""

from collections.abc import Iterable
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, QuerySet, Value
from django.db.models.functions import Coalesce

from shop.errors import ProductNotFound
from shop.models import Like, Product

LIST_LIMIT = 500  # a shop window, not a warehouse: no caller can ask for an unbounded answer
EDITABLE = frozenset({"name", "description", "picture", "price_minor", "currency", "flash_only"})


def _products(user_id: int | None) -> QuerySet[Product, Any]:
    likes = (
        Like.objects.filter(product=OuterRef("pk"))
        .order_by()
        .values("product")
        .annotate(n=Count("pk"))
        .values("n")
    )
    mine = (
        Like.objects.filter(product=OuterRef("pk"), user=user_id) if user_id is not None else Like.objects.none()
    )
    return Product.objects.annotate(like_count=Coalesce(likes, Value(0)), liked=Exists(mine))


def list_products(*, user_id: int | None) -> Iterable[Any]:
    """The first `LIST_LIMIT` products with `like_count` and `liked` (by `user_id`; None is a guest) annotated."""
    return _products(user_id).order_by("pk")[:LIST_LIMIT]


def get_product(*, sku: str, user_id: int | None) -> Any:
    """The product of `sku`, annotated as in `list_products`.

    Raises:
        ProductNotFound: there is none.
    """
    product = _products(user_id).filter(sku=sku).first()
    if product is None:
        raise ProductNotFound(sku)
    return product


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
    return bool(Product.objects.filter(pk=product_id, **before).update(**after, version=F("version") + 1))


def _id_of(sku: str) -> int:
    product_id = Product.objects.filter(sku=sku).values_list("pk", flat=True).first()
    if product_id is None:
        raise ProductNotFound(sku)
    return product_id
