"""Every intent of the clients, with every answer to it; written by many threads."""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRANSIENT_CODES = frozenset({"idempotency_in_progress"})
SAID_MAX = 8
OPEN = frozenset({"uncertain", "requested", "processing"})  # of payments and refunds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one copy of a request heard.

    Attributes:
        at: seconds since the history began, when it was heard.
        seconds: how long that took.
        web: index of the web process that was asked.
        status: 0 if nothing was heard.
        code: of a problem document; for `status` 0 what went wrong.
        body: its bytes.
        replayed: it says that it was stored.
    """

    at: float
    seconds: float
    web: int
    status: int
    code: str = ""
    body: bytes = b""
    replayed: bool = False

    @property
    def is_final(self) -> bool:
        """Whether a sound client stops here: an effect or a refusal, and not "later" or nothing."""
        return 200 <= self.status < 500 and self.status not in (408, 429) and self.code not in TRANSIENT_CODES

    @property
    def is_effect(self) -> bool:
        return 200 <= self.status < 300

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body) if self.body else {}
        return found

    @property
    def is_settled(self) -> bool:
        """Whether it is final, and no 202 of an outcome that nobody knows yet."""
        return self.is_final and (self.status != 202 or not self._is_open())

    def _is_open(self) -> bool:
        """Whether the order, payment or refund of a 202 may still go either way."""
        story = self.document
        tried = [attempt["status"] for attempt in story.get("attempts", [])]
        if "items" in story:
            return bool(story["status"] == "pending")
        return story["status"] in OPEN or "uncertain" in tried


@dataclass(slots=True, kw_only=True)
class Intent:
    """One thing that a user wants, under one key, however often it is sent.

    Attributes:
        kind: ``order``, ``pay``, ``cancel``, ``refund``, ``flash``, ``coupon`` or ``like``.
        user: number of the user.
        key: empty for likes, which need none.
        about: the order's, payment's or product's id.
    """

    kind: str
    user: int
    key: str
    path: str
    body: Any = None
    about: str = ""
    answers: list[Answer] = field(default_factory=list)

    @property
    def final(self) -> Answer | None:
        """The first answer at which a client could stop."""
        return next((answer for answer in list(self.answers) if answer.is_final), None)

    @property
    def is_settled(self) -> bool:
        return any(answer.is_settled for answer in list(self.answers))

    @property
    def is_done(self) -> bool:
        """It had its effect, as an answer said."""
        return any(answer.is_effect for answer in list(self.answers))

    def story(self) -> str:
        """For people: the last answers in a line."""
        parts = [
            f"{answer.at:.2f}s web {answer.web}: {answer.status or 'nothing'} {answer.code}".strip()
            for answer in sorted(self.answers, key=lambda answer: answer.at)
        ]
        return "; ".join(parts[-SAID_MAX:]) or "no answer"


class History:
    """All intents of a run."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.intents: list[Intent] = []
        self.requests = 0
        self.statuses: Counter[str] = Counter()
        self._lock = threading.Lock()

    def begin(self, intent: Intent) -> Intent:
        with self._lock:
            self.intents.append(intent)
        return intent

    def add(self, intent: Intent, answer: Answer) -> Answer:
        with self._lock:
            intent.answers.append(answer)
        self.count(answer.status, answer.code)
        return answer

    def count(self, status: int, code: str = "") -> None:
        """A request that was sent, keyed or not."""
        with self._lock:
            self.requests += 1
            self.statuses[f"{status} {code}".strip() if status else "no answer"] += 1

    def now(self) -> float:
        return time.monotonic() - self.began

    def of(self, *kinds: str) -> list[Intent]:
        """A copy of those of the kinds."""
        with self._lock:
            return [intent for intent in self.intents if not kinds or intent.kind in kinds]

    def write(self, path: Path) -> None:
        """One JSON object a line, for those who look into a violation."""
        with path.open("w") as file:
            for intent in self.of():
                answers = [
                    {
                        name: getattr(answer, name)
                        for name in ("at", "seconds", "web", "status", "code", "replayed")
                    }
                    | {"body": answer.body.decode(errors="replace")}
                    for answer in intent.answers
                ]
                row = {name: getattr(intent, name) for name in ("kind", "user", "key", "path", "body", "about")}
                file.write(json.dumps(row | {"answers": answers}) + "\n")
