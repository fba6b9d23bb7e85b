"""Copies of what a page shows, in each process: late at worst; nothing is decided on them.

Ordering, the API and the page of one product read the database, so what a process has acknowledged every other
one answers. A change of text or price, and units that come back, reach the copies of all processes at once. An
order renews its own process's copy alone, because a message for each would cost more than it helps: elsewhere its
units show up to `CATALOGUE_SECONDS` late, as everything does after a lost message.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from django.conf import settings
from django.db import connection, transaction

from idempotency.cachedmap import CachedMap, Entry
from payments.channels.sharing import UNSHARED
from shop.catalog.listings import Listing, read_listings


@dataclass(frozen=True, slots=True)
class _Catalogue:
    """The products of the catalogue's page, and the HTML rendered from them."""

    listings: list[Listing]
    rendered: dict[str, str] = field(default_factory=dict)


_catalogue: CachedMap[_Catalogue] = CachedMap(
    "catalogue", read=lambda _: Entry(_read(), ttl_seconds=settings.CATALOGUE_SECONDS), stored=False
)


def rendered(render: Callable[[list[Listing]], str], *, name: str) -> str:
    """Return `render` of the products, stored with them: rendering costs more than reading.

    Threads that meet a new copy together each render it.

    Args:
        render: is given the first products as this process knows them, liked by nobody.
        name: of the result, with all that it depends on besides; never the user.
    """
    current = _current()
    if name not in current.rendered:
        current.rendered[name] = render(current.listings)
    return current.rendered[name]


def publish_change() -> None:
    """Renew the catalogue's page in every process, once the caller's transaction has committed."""
    transaction.on_commit(_publish, robust=True)


def forget_copy() -> None:
    """Renew the catalogue's page in this process, once the caller's transaction has committed."""
    transaction.on_commit(_catalogue.forget)


def _publish() -> None:
    if not _catalogue.clear():
        UNSHARED.labels("local copy catalogue").inc()  # safe without Redis: the copies end by themselves


def _current() -> _Catalogue:
    # a transaction may hold writes that nobody else may see yet
    if settings.CATALOGUE_SECONDS == 0 or connection.in_atomic_block:
        return _read()
    return _catalogue.get("") or _read()


def _read() -> _Catalogue:
    return _Catalogue(read_listings())
