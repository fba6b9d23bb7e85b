"""Inbox of a consumer: a message that a queue delivers twice is applied once.

    with transaction.atomic():
        if consume_once(message.id, consumer="stock"):
            ...                                        # the effect, in this same transaction

The row that says "applied" commits with the effect, so a consumer that is killed in between has done neither, and
the queue's redelivery finds the truth. Acknowledge the message after the commit, whatever this returned.
"""

from uuid import UUID

from django.db import transaction

from idempotency.errors import explaining_missing_tables
from idempotency.postgres import home

_INSERT = """
INSERT INTO idempotency_consumedmessage (consumer, message_id) VALUES (%s, %s)
ON CONFLICT (consumer, message_id) DO NOTHING RETURNING id
"""


def consume_once(message_id: str | int | UUID, *, consumer: str) -> bool:
    """Record the message as applied by `consumer`; True the first time. Needs a transaction.

    A second delivery in another process waits at the unique index until the first one has ended.

    Args:
        message_id: its name at the queue or the sender, the same in every delivery; 1..255 characters. An int or a
            UUID is the same message as its text, `str(message_id)`.
        consumer: the part that applies it; another consumer applies the same message too. 1..96 characters.

    Returns:
        False if it has been applied: do nothing, and acknowledge it.

    Raises:
        TransactionManagementError: no transaction is open; row and effect could not commit together.
        TypeError: a consumer that is no str, or an id of another type, whose text may differ between deliveries.
        ValueError: a name is empty or too long, or has NUL.
    """
    if isinstance(message_id, bool) or not isinstance(message_id, str | int | UUID):
        raise TypeError(
            f"A message id is a str, an int or a UUID, not {type(message_id).__name__}. Give its text, the same "
            "in every delivery."
        )
    if not isinstance(consumer, str):
        raise TypeError(f"A consumer's name is a str, not {consumer!r}.")
    name = str(message_id)
    if not 1 <= len(name) <= 255 or not 1 <= len(consumer) <= 96 or "\x00" in name + consumer:
        raise ValueError("A message id has 1 to 255 characters and a consumer's name 1 to 96, without NUL.")
    if not home.is_in_transaction():
        raise transaction.TransactionManagementError(
            f"No transaction is open on {home.alias()!r}: write transaction.atomic(using={home.alias()!r}) around "
            "consume_once and the effect."
        )
    with explaining_missing_tables():
        return home.row(_INSERT, [consumer, name]) is not None
