"""A unit of work: statements of one transaction, collected on the way down and sent together."""

from dataclasses import replace
from typing import Any

from idempotency.postgres.statements import Statement, send


class UnitOfWork:
    """Statements waiting for the next round trip of the caller's transaction.

    Sending checks what each must change (`Statement.rows`): `UnexpectedRows` rolls the caller's `atomic` back.

    Args:
        is_optimistic: take conditional steps for granted and send them with the rest. If sending raises
            `UnexpectedRows`, the caller begins again, not optimistically.

    Transaction: needs the caller's, from the first send on.
    """

    def __init__(self, *, is_optimistic: bool = False) -> None:
        self._waiting: list[Statement] = []
        self.is_optimistic = is_optimistic

    def add(self, *statements: Statement) -> None:
        self._waiting += statements

    def ask(self, statement: Statement) -> list[tuple[Any, ...]]:
        waiting, self._waiting = self._waiting, []
        return send(*waiting, statement)[-1]

    def step(self, statement: Statement) -> bool:
        """Take a conditional step: an UPDATE of one row that returns it; return whether it changed the row."""
        if self.is_optimistic:
            self.add(replace(statement, rows=1))
            return True
        return bool(self.ask(statement))

    def flush(self, *, commit: bool = False) -> None:
        """Send everything that waits, with `commit` as the end of the transaction, whose COMMIT may go along."""
        waiting, self._waiting = self._waiting, []
        send(*waiting, commit=commit)
