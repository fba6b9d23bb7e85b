"""The shop window: what the catalogue shows, in the memory of each process. Ordering never reads it.

A change of what a product says or costs, a like, units that come back or are counted by hand: every process is
told at once. An order tells its own process alone, because a message for each would cost more than it helps; so
the units that another process shows are up to `CATALOGUE_SECONDS` old. If a message is lost, so is all the rest.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, OuterRef, Value
from django.db.models.functions import Coalesce

from shop.local_copy import LocalCopy
from shop.models import Like, Product

LIMIT = 500  # a shop window, not a warehouse: no caller can ask for an unbounded answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A product as it is shown.

    Attributes:
        pk: primary key.
        stock: units that can be ordered.
        like_count: of all users.
        liked: by the user who looks.
    """

    pk: int
    sku: str
    name: str
    description: str
    picture: str
    price_minor: int
    currency: str
    flash_only: bool
    stock: int
    like_count: int
    liked: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """What stands in it.

    Attributes:
        listings: sku -> product, in the order of primary keys, liked by nobody.
        likes: user -> primary keys of what he likes of it; filled as users look, ends with the window.
    """

    listings: dict[str, Listing]
    likes: dict[int, frozenset[int]] = field(default_factory=dict)

    def seen_by(self, user_id: int | None) -> dict[str, Listing]:
        """The listings with `liked`."""
        if user_id is None:
            return self.listings
        if (liked := self.likes.get(user_id)) is None:
            mine = Like.objects.filter(user=user_id, product__in=[one.pk for one in self.listings.values()])
            liked = self.likes[user_id] = frozenset(mine.values_list("product", flat=True))
        if not liked:
            return self.listings
        return {sku: replace(one, liked=True) if one.pk in liked else one for sku, one in self.listings.items()}


def listings(*, user_id: int | None) -> list[Listing]:
    """The first `LIMIT` products."""
    return list((_kept() or _read()).seen_by(user_id).values())


def listing(*, sku: str, user_id: int | None) -> Listing | None:
    """A product; from the database if the window does not show it yet, or has no room for it."""
    kept = _kept()
    shown = kept if kept is not None and sku in kept.listings else _read(sku=sku)
    return shown.seen_by(user_id).get(sku)


def tell() -> None:
    """Something that it shows has changed: tell every process, once the caller's transaction has committed."""
    transaction.on_commit(_copy.tell, robust=True)


def renew() -> None:
    """The same for this process alone."""
    transaction.on_commit(_copy.forget)


def _kept() -> Window | None:
    """As this process knows it; None where the database is to be read."""
    # a transaction may hold writes that nobody else shall see yet
    return None if settings.CATALOGUE_SECONDS == 0 or connection.in_atomic_block else _copy.get()


def _read(**only: Any) -> Window:
    likes = (
        Like.objects.filter(product=OuterRef("pk"))
        .order_by()
        .values("product")
        .annotate(n=Count("pk"))
        .values("n")
    )
    columns = ("pk", "sku", "name", "description", "picture", "price_minor", "currency", "flash_only")
    products = Product.objects.filter(**only).with_units().annotate(like_count=Coalesce(likes, Value(0)))
    rows = products.order_by("pk").values(*columns, "units", "like_count")[:LIMIT]
    return Window({row["sku"]: Listing(stock=row.pop("units"), **row) for row in rows})


_copy: LocalCopy[Window] = LocalCopy("catalogue", read=_read, seconds=lambda: settings.CATALOGUE_SECONDS)
