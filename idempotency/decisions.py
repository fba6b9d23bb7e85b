"""What an operator may decide about an entry whose outcome is unknown, and what its caller hears from then on.

Both decisions finish the entry for good: a retry with its key gets the stored answer and nothing is executed. Both
are kept with the operator's name and reason in the entry's history, which nobody can change.
"""

import json
from dataclasses import dataclass

from idempotency import ledger, marker, vault
from idempotency.errors import Problem, problem_document
from idempotency.keys import digest_of
from idempotency.models import LedgerEntry, Outcome
from idempotency.response import StoredResponse

RESOLVE_STATUSES = (200, 201, 202, 204)


class NotDecidable(Exception):
    """The entry is finished, atomic, still running under its lease, or changed since the operator looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who decides, about what he saw, and why.

    Attributes:
        entry_id: the entry.
        fence: its fencing number when the operator looked at it.
        operator: his name, for the history.
        note: his reason; not empty.
    """

    entry_id: int
    fence: int
    operator: str
    note: str


def resolve(decision: Decision, *, status: int, body: str, location: str = "") -> None:
    """It happened: from now on the key is answered with this.

    Args:
        status: one of `RESOLVE_STATUSES`.
        body: JSON, or empty for 204.
        location: address of what was made; may be empty.

    Raises:
        NotDecidable: see there.
        ValueError: no reason, another status, or a body that is not JSON.
    """
    if status not in RESOLVE_STATUSES:
        raise ValueError(f"The status must be one of {', '.join(map(str, RESOLVE_STATUSES))}.")
    if status != 204:
        try:
            json.loads(body)
        except ValueError as error:
            raise ValueError(f"The answer's body must be JSON: {error}.") from error
    headers = {"Content-Type": "application/json"} | ({"Location": location} if location else {})
    _close(
        decision, Outcome.RESOLVED, status=status, headers=headers, body=b"" if status == 204 else body.encode()
    )


def abandon(decision: Decision) -> None:
    """It did not happen and must not: from now on the key is answered with 409 `operation_abandoned`.

    Raises:
        NotDecidable: see there.
        ValueError: no reason.
    """
    problem = Problem(
        409,
        "operation_abandoned",
        "This request was not carried out and was closed by an operator. Use a new key for a new intent.",
    )
    body = json.dumps(problem_document(problem)).encode()
    headers = {"Content-Type": "application/problem+json"}
    _close(decision, Outcome.ABANDONED, status=409, headers=headers, body=body)


def _close(decision: Decision, outcome: Outcome, *, status: int, headers: dict[str, str], body: bytes) -> None:
    if not decision.note.strip():
        raise ValueError("A decision needs a reason.")
    entry = LedgerEntry.objects.filter(pk=decision.entry_id).first()
    if entry is None:
        raise NotDecidable
    digest = digest_of(scope=entry.scope, key=entry.key)
    answer = vault.seal(StoredResponse(status=status, headers=headers, body=body), digest=digest)
    closed = ledger.close_by_hand(
        entry_id=decision.entry_id,
        fence=decision.fence,
        answer=answer,
        outcome=outcome,
        operator=decision.operator,
        note=decision.note.strip(),
    )
    if not closed:
        raise NotDecidable
    marker.ring(digest)
