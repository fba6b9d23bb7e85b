"""Searches of large tables: each reads an index, or a bounded number of the newest rows.

One statement over several columns, one of them without an index, makes PostgreSQL read the whole table; a list
ordered by number tempts it to walk from the newest row until its page is full. So every way to search is a
statement of its own, and the list is given numbers.
"""

import re
from typing import Any, ClassVar, TypeVar

from django.db.models import CharField, F, Func, Model, Q, QuerySet, Value
from django.http import HttpRequest

from idempotency.models import LedgerEntry

LOOKED_AT = 100_000  # rows that a search or filter without an index looks through, the newest
FOUND_MAX = 1_000  # rows that one way to search finds
VALUES_MAX = 500  # different values of a column

_DIGEST = re.compile("[0-9a-f]{64}")

Row = TypeVar("Row", bound=Model)


class WholeTermSearch:
    """Mixin of an admin page that takes the search field as one term; `search` finds its rows.

    It comes before `ModelAdmin` among the bases; `search_fields` only makes Django show the field.

    Attributes:
        searched: columns of a unique index; a row is found by the second one, whatever it has in the first.
    """

    searched: ClassVar[tuple[str, str]]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search for the stripped term; an empty one finds everything, and no row is found twice."""
        term = search_term.strip()
        return (self.search(queryset, term) if term else queryset), False

    def search(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return those of `rows` that a term, not empty, finds by an index or among the newest."""
        leading, column = self.searched
        values = values_of(rows.model._default_manager.all(), leading)
        found = rows.filter(**{f"{leading}__in": values, column: term})
        return rows.filter(pk__in=numbers_of(found, leading, column))


class _Digest(Func):
    """SQL of an entry's digest, as log lines show it: `keys.digest_of`."""

    template = "encode(sha256(%(expressions)s), 'hex')"
    arg_joiner = r" || '\x00'::bytea || "

    def __init__(self) -> None:
        columns = (Func(F(name), Value("UTF8"), function="convert_to") for name in ("scope", "key"))
        super().__init__(*columns, output_field=CharField())


def newest(rows: QuerySet[Row], *, by: str = "pk") -> QuerySet[Row]:
    """Search the first `LOOKED_AT` rows of an index, backwards; the primary key's by default."""
    end = rows.model._default_manager.order_by(f"-{by}").values_list(by, flat=True)
    beyond = list(end[LOOKED_AT : LOOKED_AT + 1])
    return rows.filter(**{f"{by}__gt": beyond[0]}) if beyond else rows


def numbers_of(rows: QuerySet[Any], *order: str) -> set[Any]:
    """Return the primary keys of the first `FOUND_MAX` rows by `order`, an index."""
    return set(rows.order_by(*order).values_list("pk", flat=True)[:FOUND_MAX])


def numbers_among_newest(rows: QuerySet[Any], wanted: Q) -> set[Any]:
    """Return the primary keys of the newest `FOUND_MAX` `wanted` rows, without an index."""
    return numbers_of(newest(rows).filter(wanted), "-pk")


def values_of(rows: QuerySet[Any], column: str) -> list[Any]:
    """List the first `VALUES_MAX` values of an index's first column, one index step each."""
    found: list[Any] = []
    ahead = rows.order_by(column).values_list(column, flat=True)
    while (value := ahead.first()) is not None and len(found) < VALUES_MAX:
        found.append(value)
        ahead = ahead.filter(**{f"{column}__gt": value})
    return found


def entries(rows: QuerySet[LedgerEntry], term: str, *, scopes: bool) -> set[int]:
    """Find entries by a whole key or subject, and the newest by a request id or digest.

    Args:
        scopes: find by the beginning of a scope too, among the newest.
    """
    in_newest = Q(request_id=term) | (Q(scope__startswith=term) if scopes else Q())
    if _DIGEST.fullmatch(term):
        rows, in_newest = rows.annotate(digest=_Digest()), in_newest | Q(digest=term)
    return (
        numbers_of(rows.filter(key=term), "key", "scope")
        | numbers_of(rows.filter(subject=term), "subject")
        | numbers_among_newest(rows, in_newest)
    )
