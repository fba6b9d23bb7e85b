"""Stripe's wire: authentication, Idempotency-Keys, lists and errors.

Source: Stripe API reference, "Authentication", "Idempotent requests", "Errors", "Pagination" (read 2026-11).
"""

import base64
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict

from payments.sandbox import state
from payments.sandbox.stripe.documents import Document

MOST, _FEWEST = 100, 10

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "gt": lambda value, bound: value > bound,
    "gte": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lte": lambda value, bound: value <= bound,
}

# the same key twice at once is executed once: the second waits here, and is then answered as the first
_one_write = threading.Lock()

View = Callable[..., Document]


class Error(Exception):
    def __init__(self, status: int, message: str, *, code: str = "", kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.document = {"error": {"type": kind, "message": message, **({"code": code} if code else {})}}


class Invalid(Error):
    """Wrong parameters: nothing began, so no Idempotency-Key is used up."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message, code="parameter_invalid")


def account_only(view: View) -> Callable[..., HttpResponse]:
    """Require the account's secret key, and replay the answer of a POST's Idempotency-Key."""

    @wraps(view)
    def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        replayed = False
        try:
            _must_be_ours(request)
            if request.method == "POST":
                status, body, replayed = _once(request, lambda: view(request, **kwargs))
            else:
                status, body = 200, json.dumps(view(request, **kwargs))
        except Error as error:
            status, body = error.status, json.dumps(error.document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            status, body = 400, json.dumps(Invalid(f"{type(error).__name__}: {error}").document)
        headers = {"Request-Id": f"req_{secrets.token_hex(7)}"}
        if replayed:
            headers["Idempotent-Replayed"] = "true"
        return HttpResponse(body, status=status, content_type="application/json", headers=headers)

    return wrapper


def _must_be_ours(request: HttpRequest) -> None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme == "Basic":  # as curl -u does: the key is the user's name
        given = base64.b64decode(given.encode(), validate=False).decode(errors="replace").partition(":")[0]
    if not secrets.compare_digest(given.encode(), state.keys().settings["STRIPE_SECRET_KEY"].encode()):
        raise Error(401, "Invalid API Key provided")


def _once(request: HttpRequest, run: Callable[[], Document]) -> tuple[int, str, bool]:
    """Return status, body, and True if they are those of an earlier call with the same key."""
    key = request.headers.get("Idempotency-Key", "")
    asked = f"{request.path}\n{sorted(request.POST.lists())}".encode()
    fingerprint = hashlib.sha256(asked).hexdigest()
    with _one_write:
        found = state.store().kept_of(f"key {key}") if key else {}
        if found and found["fingerprint"] != fingerprint:
            raise Error(
                400,
                "Keys for idempotent requests can only be used with the parameters they were first used with.",
                kind="idempotency_error",
            )
        if found:
            return found["status"], found["body"], True
        try:
            status, body = 200, json.dumps(run())
        except Invalid:
            raise
        except Error as error:
            status, body = error.status, json.dumps(error.document)
        if key:
            state.store().keep(f"key {key}", fingerprint=fingerprint, status=status, body=body)
    return status, body, False


def nested(flat: QueryDict) -> dict[str, Any]:
    """Convert ``a[b]=c`` to ``{"a": {"b": "c"}}``; a list becomes a dict by its indices."""
    tree: dict[str, Any] = {}
    for name, values in flat.lists():
        *path, last = re.findall(r"[^\[\]]+", name)
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = dict(enumerate(values)) if name.endswith("[]") else values[-1]
    return tree


@dataclass(frozen=True, slots=True)
class Entry:
    """Object of a list, built only where it is shown."""

    number: str
    created: int
    build: Callable[..., Document]


def page_of(given: dict[str, Any], entries: list[Entry], *, url: str) -> Document:
    """Cut one page, within the window of `created`."""
    bounds = [(_COMPARED[name], int(bound)) for name, bound in (given.get("created") or {}).items()]
    limit = int(given.get("limit", _FEWEST))
    if not 1 <= limit <= MOST:
        raise Invalid(f"limit must be between 1 and {MOST}")
    within = [entry for entry in entries if all(holds(entry.created, bound) for holds, bound in bounds)]
    after = given.get("starting_after")
    first = [entry.number for entry in within].index(after) + 1 if after else 0
    expand = expanded(given, "data.")
    return {
        "object": "list",
        "url": url,
        "has_more": first + limit < len(within),
        "data": [entry.build(expand=expand) for entry in within[first : first + limit]],
    }


def expanded(given: dict[str, Any], prefix: str = "") -> set[str]:
    wanted = given.get("expand") or {}
    return {str(name).removeprefix(prefix) for name in wanted.values()}
