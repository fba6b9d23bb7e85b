"""Index types and operations that Django lacks: BRIN without `django.contrib.postgres`, a concurrent drop."""

from typing import Any

from django.db import models
from django.db.migrations import AlterField


class BlockRangeIndex(models.Index):
    """BRIN index, for a column whose values grow with the table: a few bytes a block range."""

    suffix = "brin"

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        return super().create_sql(model, schema_editor, using=" USING brin", **kwargs)


class WithoutIndex(AlterField):
    """`AlterField` to a field without an index of its own, because a longer one begins with it.

    The index is dropped while the table is in use, so its migration says ``atomic = False``; run again it finds
    nothing to do. Backwards it is built as Django builds it, which keeps writers waiting.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection, model = schema_editor.connection, to_state.apps.get_model(app_label, self.model_name)
        if connection.vendor != "postgresql" or not self.allow_migrate_model(connection.alias, model):
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        column = model._meta.get_field(self.name).column
        name = schema_editor.quote_name(schema_editor._create_index_name(model._meta.db_table, [column]))
        # the drop waits for every transaction on the table, however long
        schema_editor.execute("SET statement_timeout = 0")
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        schema_editor.execute("RESET statement_timeout")

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        super().database_forwards(app_label, schema_editor, from_state, to_state)
