"""BRIN index without `django.contrib.postgres`."""

from typing import Any

from django.db import models


class BlockRangeIndex(models.Index):
    """BRIN index, for a column whose values grow with the table: a few bytes a block range."""

    suffix = "brin"

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        return super().create_sql(model, schema_editor, using=" USING brin", **kwargs)
