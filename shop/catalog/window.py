"""The shop window: what the catalogue's page shows, in the memory of each process.

Nothing else reads it: ordering, the API and the page of one product ask the database, so whatever a process has
acknowledged is seen at every other. The page with all of them may be late. A change of what a product says or
costs, units that come back or are counted by hand: every process is told at once. An order tells its own process
alone, because a message for each would cost more than it helps; so the units that another process shows there are
up to `CATALOGUE_SECONDS` old. If a message is lost, all else that is shown may be as old.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, Exists, OuterRef, Value
from django.db.models.functions import Coalesce

from shop.catalog.local_copy import LocalCopy
from shop.models import Like, Product

LIMIT = 500  # a shop window, not a warehouse: no caller can ask for an unbounded answer

_COLUMNS = ("pk", "sku", "name", "description", "picture", "price_minor", "currency", "flash_only")


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
    liked: bool


@dataclass(frozen=True, slots=True)
class _Window:
    """Products, and what was drawn of them; the drawings end with them."""

    listings: list[Listing]
    drawings: dict[str, str] = field(default_factory=dict)


def drawn(draw: Callable[[list[Listing]], str], *, name: str) -> str:
    """What `draw` makes of the products, kept as long as they are: it costs more than reading them.

    Threads that come to a new copy together draw it each for themselves.

    Args:
        draw: is given the first `LIMIT` products as this process knows them, liked by nobody.
        name: of the drawing, with all that it depends on besides; who looks is no part of it.
    """
    current = _current()
    if name not in current.drawings:
        current.drawings[name] = draw(current.listings)
    return current.drawings[name]


def _current() -> _Window:
    # a transaction may hold writes that nobody else shall see yet
    fresh = settings.CATALOGUE_SECONDS == 0 or connection.in_atomic_block
    return _look() if fresh else _copy.get()


def _look() -> _Window:
    return _Window(read())


def read(*, user_id: int | None = None, **only: Any) -> list[Listing]:
    """The first `LIMIT` products from the database, by primary key; one statement.

    Args:
        user_id: who looks; None is a guest.
        only: conditions of a filter.
    """
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
    rows = products.order_by("pk").values(*_COLUMNS, "units", "like_count", "liked")[:LIMIT]
    return [Listing(stock=row.pop("units"), **row) for row in rows]


def tell() -> None:
    """Something that it shows has changed: tell every process, once the caller's transaction has committed."""
    transaction.on_commit(_copy.tell, robust=True)


def renew() -> None:
    """The same for this process alone."""
    transaction.on_commit(_copy.forget)


_copy: LocalCopy[_Window] = LocalCopy("catalogue", read=_look, seconds=lambda: settings.CATALOGUE_SECONDS)
