"""What of an answer is kept, and how it is given again."""

import gzip
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from idempotency.response.redaction import redacted

REPLAYED_HEADER = "Idempotent-Replayed"

# cookies, caching, encoding and connection headers belong to the one exchange they were made for
KEPT_HEADERS = ("Content-Type", "Location", "ETag")

# answers that say "no" about the named thing itself; a retry would hear the same
_REFUSALS = frozenset({402, 404, 409, 410, 412, 422})


class Verdict(StrEnum):
    """What an answer means for the ledger."""

    EFFECT = "effect"  # 2xx, 3xx: commit it with the answer
    REFUSAL = "refusal"  # undo the handler's writes, keep the answer
    NOT_STORED = "not_stored"  # undo, keep nothing: the same key may try again


def verdict_on(status: int) -> Verdict:
    """How an answer of `status` is stored (docs/contract.md, 1, row "stored")."""
    if 200 <= status < 400:
        return Verdict.EFFECT
    return Verdict.REFUSAL if status in _REFUSALS else Verdict.NOT_STORED


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """The kept part of an answer.

    Attributes:
        status: HTTP status, 200..499.
        headers: of `KEPT_HEADERS`, those that it had.
        body: its bytes; None where they were too large to keep or have been purged.
        body_key_id: key under which `body` is encrypted (`idempotency.response.encryption`); empty: it is not.
    """

    status: int
    headers: dict[str, str]
    body: bytes | None
    body_key_id: str = ""

    @classmethod
    def of(cls, response: HttpResponseBase, *, max_bytes: int, redact: tuple[str, ...] = ()) -> "StoredResponse":
        """Keep what may be replayed of a rendered `response`, without the members named in `redact`.

        A streaming answer has no bytes yet and is kept without a body, like one larger than `max_bytes`. One
        that a decorator below ours compressed is kept plain: the encoding was this one caller's wish.
        """
        headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
        body = _plain_bytes(response)
        if body and redact:
            body = redacted(body, content_type=headers.get("Content-Type", ""), names=redact)
        if body is not None and len(body) > max_bytes:
            body = None
        return cls(status=response.status_code, headers=headers, body=body)

    def replay(self) -> HttpResponse:
        """The same status, bytes and headers again, marked as a replay, and as nothing for a cache."""
        response = HttpResponse(self.body or b"", status=self.status)
        del response.headers["Content-Type"]
        for name, value in self.headers.items():
            response.headers[name] = value
        response.headers[REPLAYED_HEADER] = "true"
        response.headers["Cache-Control"] = "no-store"
        patch_vary_headers(response, ("Authorization",))
        return response


def _plain_bytes(response: HttpResponseBase) -> bytes | None:
    """The body without its content encoding; None for a stream, or an encoding other than gzip."""
    if not isinstance(response, HttpResponse):
        return None
    encoding = response.headers.get("Content-Encoding", "")
    if encoding == "gzip":
        return gzip.decompress(response.content)
    return None if encoding else bytes(response.content)


def rendered(response: Any) -> HttpResponseBase:
    """`response` with its bytes made, so that they can be stored inside the transaction."""
    if hasattr(response, "is_rendered") and not response.is_rendered:
        response.render()
    if not isinstance(response, HttpResponseBase):
        raise TypeError(f"A keyed view must return an HttpResponse, not {type(response).__name__}.")
    return response
