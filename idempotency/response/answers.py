"""Stored part of an answer, and its replay."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from idempotency.response.redaction import redacted

REPLAYED_HEADER = "Idempotent-Replayed"

# cookies, caching, encoding and connection headers belong to the one response they were made for
STORED_HEADERS = ("Content-Type", "Location", "ETag")

_OF_REPLAYS = {REPLAYED_HEADER: "true", "Cache-Control": "no-store", "Vary": "Authorization"}

# no names of headers, so they meet none
LIFETIME = ":lifetime"  # in seconds
OPEN = ":open"  # the answer shows the form of its intent again

UNCERTAIN_STATUS = 202  # the outcome outside is not known yet

# answers that say "no" about the named thing itself; a retry would get the same
_REFUSALS = frozenset({402, 404, 409, 410, 412, 422})


class Verdict(StrEnum):
    """Meaning of an answer for the ledger."""

    EFFECT = "effect"  # 2xx, 3xx: commit it with the answer
    REFUSAL = "refusal"  # undo the handler's writes, store the answer
    NOT_STORED = "not_stored"  # undo, store nothing: the same key may try again


def verdict_on(status: int) -> Verdict:
    """Judge an answer by its `status` (docs/contract.md, 1, row "stored")."""
    if 200 <= status < 400:
        return Verdict.EFFECT
    return Verdict.REFUSAL if status in _REFUSALS else Verdict.NOT_STORED


def leaves_open(status: int | None, headers: Mapping[str, str]) -> bool:
    """Check if an intent may be tried again after this answer: a refusal, or its form."""
    return status is not None and (OPEN in headers or verdict_on(status) is Verdict.REFUSAL)


@dataclass(slots=True, kw_only=True)  # not frozen, which makes it in thrice the time
class StoredResponse:
    """Stored part of an answer; never changed.

    Attributes:
        status: HTTP status, 200..499.
        headers: of `STORED_HEADERS`, those that it had; `LIFETIME`, where it has one of its own; `OPEN`.
        body: its bytes; None where they were too large to store or have been purged.
        body_key_id: key under which `body` is encrypted (`idempotency.response.encryption`); empty: it is not.
    """

    status: int
    headers: dict[str, str]
    body: bytes | None
    body_key_id: str = ""

    @classmethod
    def of(
        cls,
        response: HttpResponseBase,
        *,
        max_bytes: int,
        redact: tuple[str, ...] = (),
        lifetime_seconds: float | None = None,
        is_open: bool = False,
    ) -> "StoredResponse":
        """Take from a rendered `response` what may be replayed, without the members of `redact`.

        A streaming answer has no bytes yet and is stored without a body, like one that is larger than `max_bytes`
        or nested too deep to redact. One that a decorator below ours compressed is stored plain: the encoding was
        this caller's wish.
        """
        given = response.headers
        headers = {name: value for name in STORED_HEADERS if (value := given.get(name)) is not None}
        body = _plain_bytes(response)
        if body and redact:
            try:
                body = redacted(body, content_type=headers.get("Content-Type", ""), names=redact)
            except RecursionError:  # nested too deep to find the members; the effect stays
                body = None
        if lifetime_seconds is not None:
            headers[LIFETIME] = f"{lifetime_seconds:g}"
        if is_open:
            headers[OPEN] = "1"
        if body is not None and (len(body) > max_bytes or lifetime_seconds == 0):
            body = None
        return cls(status=response.status_code, headers=headers, body=body)

    @property
    def lifetime_seconds(self) -> float:
        """Time that it may be replayed by its own view; infinite where that says nothing."""
        return float(self.headers.get(LIFETIME, "inf"))

    def replay(self) -> HttpResponse:
        """Build the same status, bytes and headers again, marked as a replay and never cached."""
        headers = {name: value for name, value in self.headers.items() if name not in (LIFETIME, OPEN)}
        response = HttpResponse(self.body or b"", status=self.status, headers=headers | _OF_REPLAYS)
        if "Content-Type" not in headers:
            del response.headers["Content-Type"]  # Django's own, which the first answer did not have
        return response


def mark_replay(response: HttpResponseBase) -> None:
    """Mark a handler's own answer as a replay, never cached; what it varies by stays."""
    for name in (REPLAYED_HEADER, "Cache-Control"):
        response.headers[name] = _OF_REPLAYS[name]
    patch_vary_headers(response, [_OF_REPLAYS["Vary"]])


def _plain_bytes(response: HttpResponseBase) -> bytes | None:
    """Return the body without its encoding; None for a stream, or an encoding other than gzip."""
    if not isinstance(response, HttpResponse):
        return None
    encoding = response.headers.get("Content-Encoding", "")
    if encoding == "gzip":
        return gzip.decompress(response.content)
    return None if encoding else bytes(response.content)


def rendered(response: Any) -> HttpResponseBase:
    """Render `response`, so that its bytes can be stored inside the transaction."""
    if hasattr(response, "is_rendered") and not response.is_rendered:
        response.render()
    if not isinstance(response, HttpResponseBase):
        raise TypeError(f"A keyed view must return an HttpResponse, not {type(response).__name__}.")
    return response
