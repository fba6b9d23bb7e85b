"""Rules that a CHECK cannot say, as constraints of a model: triggers that refuse a write."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import BaseConstraint

CHECK = "check_violation"

_FUNCTION = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    {when}RAISE EXCEPTION '{table} %: {message}', {row}.{pk}
        USING ERRCODE = '{error}', CONSTRAINT = '{raises}';{end}
END;
$$;
"""
_BEFORE = """
CREATE TRIGGER {name} BEFORE {on} ON {table}
    FOR EACH ROW {when}EXECUTE FUNCTION {name}();
"""
_AT_COMMIT = """
CREATE CONSTRAINT TRIGGER {name} AFTER {on} ON {table}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {name}();
"""


class Guard(BaseConstraint):
    """A write that PostgreSQL refuses, from any writer.

    It belongs in `Meta.constraints`: `makemigrations` adds, alters and removes it, and `--check` misses none. The
    writer gets an IntegrityError that names a constraint. Of several guards the first by name refuses.

    Args:
        name: of the trigger and its function.
        on: "INSERT", "UPDATE", "DELETE", or several joined by OR.
        message: text of the error, after the table and the row's primary key.
        when: SQL condition over NEW and OLD; empty: always. At the commit it may read other rows.
        raises: the constraint that the error names; empty: `name`.
        error: PostgreSQL's name of an SQLSTATE of class 23.
        at_commit: judge when the transaction commits.
    """

    def __init__(
        self,
        *,
        name: str,
        on: str,
        message: str,
        when: str = "",
        raises: str = "",
        error: str = CHECK,
        at_commit: bool = False,
    ) -> None:
        super().__init__(name=name)
        self.on, self.when, self.at_commit = on, when, at_commit
        self.message, self.raises, self.error = message, raises, error

    def create_sql(self, model: Any, schema_editor: Any) -> str:
        """Build the statements that make the function and its trigger; empty for other databases."""
        if schema_editor.connection.vendor != "postgresql":
            return ""
        quoted = {
            "name": schema_editor.quote_name(self.name),
            "table": schema_editor.quote_name(model._meta.db_table),
            "on": self.on,
        }
        function = _FUNCTION.format(
            name=quoted["name"],
            table=model._meta.db_table,
            message=self.message,
            row="NEW" if self.on == "INSERT" else "OLD",
            pk=schema_editor.quote_name(model._meta.pk.column),
            error=self.error,
            raises=self.raises or self.name,
            when=f"IF {self.when} THEN\n    " if self.at_commit else "",
            end="\n    END IF;\n    RETURN NULL;" if self.at_commit else "",
        )
        if self.at_commit:
            return function + _AT_COMMIT.format(**quoted)
        return function + _BEFORE.format(when=f"WHEN ({self.when}) " if self.when else "", **quoted)

    def constraint_sql(self, model: Any, schema_editor: Any) -> str:
        """Add the trigger after CREATE TABLE, where no trigger has a place."""
        if sql := self.create_sql(model, schema_editor):
            schema_editor.deferred_sql.append(sql)
        return ""

    def remove_sql(self, model: Any, schema_editor: Any) -> str:
        """Build the statement that drops the function and its trigger; empty for other databases."""
        if schema_editor.connection.vendor != "postgresql":
            return ""
        return f"DROP FUNCTION {schema_editor.quote_name(self.name)}() CASCADE"

    def validate(self, model: Any, instance: Any, exclude: Any = None, using: str = "") -> None:
        """Leave it to the database, which alone has the former row."""

    def deconstruct(self) -> tuple[str, tuple[()], dict[str, Any]]:
        """Return what a migration stores: the SQL condition, so that a new step needs a new one."""
        path, _, kwargs = super().deconstruct()
        given = {key: getattr(self, key) for key in ("on", "when", "message", "raises", "at_commit")}
        if self.error != CHECK:
            given["error"] = self.error
        return path, (), kwargs | {key: value for key, value in given.items() if value}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guard) and self.deconstruct() == other.deconstruct()

    __hash__ = BaseConstraint.__hash__


def changed(*columns: str) -> str:
    return " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in columns)


def shrinks(*columns: str) -> str:
    """Return the condition that an UPDATE makes one of `columns` less."""
    return " OR ".join(f"NEW.{column} < OLD.{column}" for column in columns)


def unversioned(*columns: str) -> str:
    """Return the condition that `version` goes back, or stays while one of `columns` changes."""
    return f"{shrinks('version')} OR (NEW.version = OLD.version AND ({changed(*columns)}))"


def no_step(table: Mapping[Any, Collection[Any]]) -> str:
    """Return the condition that `status` takes a step that is not in `table`: its successors."""
    # in one constant: PostgreSQL parses the condition at each statement, and pairs are eight times as long
    steps = ",".join(f"{before} {after}" for before, afters in table.items() for after in sorted(afters))
    return f"NEW.status <> OLD.status AND OLD.status || ' ' || NEW.status <> ALL ('{{{steps}}}')"
