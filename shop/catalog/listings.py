"""Products as they are shown: name, price, units, likes. Reads only, one statement."""

from dataclasses import dataclass, fields
from typing import Any

from django.db.models import Count, Exists, OuterRef, Value
from django.db.models.functions import Coalesce

from shop.models import Like, Product
from shop.models.product import InLanguage

LIMIT = 500  # a shop window, not a warehouse: no caller can ask for an unbounded answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(InLanguage):
    """A product as it is shown.

    Attributes:
        stock: units that can be ordered.
        like_count: of all users.
        liked: by the user who looks.
    """

    pk: int
    sku: str
    name: str
    name_zh: str
    description: str
    description_zh: str
    picture: str
    price_minor: int
    currency: str
    flash_only: bool
    stock: int
    like_count: int
    liked: bool


def read_listings(*, user_id: int | None = None, **only: Any) -> list[Listing]:
    """Read the first `LIMIT` products that `only` filters, by key; no `user_id` is a guest."""
    likes = (
        Like.objects.filter(product=OuterRef("pk"))
        .order_by()
        .values("product")
        .annotate(n=Count("pk"))
        .values("n")
    )
    mine = Like.objects.none() if user_id is None else Like.objects.filter(product=OuterRef("pk"), user=user_id)
    products = Product.objects.filter(**only).with_units()
    products = products.annotate(like_count=Coalesce(likes, Value(0)), liked=Exists(mine))
    columns = [field.name for field in fields(Listing) if field.name != "stock"]
    rows = products.order_by("pk").values(*columns, "units")[:LIMIT]
    return [Listing(stock=row.pop("units"), **row) for row in rows]
