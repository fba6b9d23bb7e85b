"""Values that go into the ledger and come out of it."""

from dataclasses import dataclass
from typing import Any

from idempotency.response.answers import StoredResponse


@dataclass(slots=True, kw_only=True)  # not frozen, which makes it in thrice the time
class Identity:
    """Keyed request, as the ledger stores it; never changed.

    Attributes:
        scope, key: unique together.
        fingerprint: 32 bytes.
        owner: the process, for people.
        request_id: of this execution, for people.
        digest: names (scope, key), see `keys.digest_of`.
        handler: name of the `Phases` that can resume it without a request; empty if none can.
    """

    scope: str
    key: str
    fingerprint: bytes
    owner: str
    request_id: str
    digest: str
    handler: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """Right to execute a phased entry: valid while no greater fencing number is given out."""

    entry_id: int
    fence: int


@dataclass(frozen=True, slots=True)
class Numbered:
    """Entry of a numbered key: an intent's try, or a repeat in a window.

    Attributes:
        is_open: it is answered, but its intent is not done.
        age_seconds: time since its answer; None: unanswered.
    """

    number: int
    fingerprint: bytes
    is_open: bool
    age_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Committed entry as the request path needs it.

    Attributes:
        entry_id, scope, key, fence, state, fingerprint, subject, handler, recovery_point, recovery_data: columns.
        answer: None while it is not finished.
        fresh_seconds: how long the bytes of the answer may still be given; 0 or less: purged, or due to be.
    """

    entry_id: int
    scope: str
    key: str
    fence: int
    state: str
    fingerprint: bytes
    subject: str
    handler: str
    recovery_point: str
    recovery_data: dict[str, Any]
    answer: StoredResponse | None
    fresh_seconds: float
