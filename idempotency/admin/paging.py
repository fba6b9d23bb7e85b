"""Pages of large tables in the admin, without counting every row."""

from math import ceil
from typing import Any

from django.core.paginator import Paginator
from django.db import connections
from django.utils.functional import cached_property

COUNTED_MAX = 10_000
PAGED_MAX = 100_000  # PostgreSQL reads all rows before a page; what is further down is searched or filtered for


class EstimatingPaginator(Paginator):  # type: ignore[type-arg]
    """Paginator that counts up to `COUNTED_MAX`, and takes PostgreSQL's estimate of a longer table.

    Pages of a filtered list end at that bound, so that a longer one is filtered further; those of a whole table
    end at `PAGED_MAX` rows.
    """

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        counted = int(rows[: COUNTED_MAX + 1].count())
        if counted <= COUNTED_MAX:
            return counted
        if rows.query.where:
            return COUNTED_MAX
        return max(COUNTED_MAX, _estimate(rows.model._meta.db_table, using=rows.db))

    @cached_property
    def num_pages(self) -> int:
        return min(super().num_pages, ceil(PAGED_MAX / self.per_page))


def _estimate(table: str, *, using: str) -> int:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", [f'"{table}"'])
        return int(cursor.fetchone()[0])
