"""Scope and key of a request: by its token, by its header, or by its content within a window.

A window has no edges. An unkeyed call has the key of the youngest entry of the same caller, route and content, as
long as that one is unfinished or was finished within the window by the database's clock; else the next one's. Two
concurrent repeats read the same youngest entry and so have the same key, whose unique constraint lets one execute.

Limits: it costs a query, and the digest of the content is keyed by the oldest of `SECRET_KEY_FALLBACKS`, so a
repeat across the removal of that one may count again.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from django.http import HttpRequest

from idempotency import ledger
from idempotency.errors import key_invalid, key_missing, key_weak, token_unknown
from idempotency.protocol import tokens
from idempotency.request import fingerprint, keys
from idempotency.request.principal import anonymous_like, caller_of, is_anonymous, was_answered

GENERATION_DIGITS = 10

Key = str | Callable[[bytes], str]


def identify(
    request: HttpRequest,
    *,
    caller: Any,
    header: str = "Idempotency-Key",
    principal: Callable[[Any], str] | None = None,
    needs_key: Callable[[Any], str],
) -> tuple[str, Key | None] | None:
    """Return (scope, key), by the Idempotency-Token (header or form field), else the header with the key.

    Args:
        caller: the request that authentication has seen: REST framework's, where there is one.
        header: name of the header with the key.
        principal: function that names the caller; None: as `principal_of`.
        needs_key: `Policy._needs_key`, asked for a call without a key.

    Returns:
        None: it runs unkeyed. A key of None: the content is its key. A function: so is the key by the content.

    Raises:
        Problem: key missing, invalid or weak; token unknown; an anonymous caller is turned away.
    """
    # from META: `request.headers` would build a mapping of all of them first
    token = request.META.get("HTTP_IDEMPOTENCY_TOKEN") or _token_of_form(request)
    given = request.META.get(_in_meta(header))
    needed = "key" if token is not None or given is not None else needs_key(caller)
    if not needed:
        return None
    named = caller_of(caller, by=principal)  # authentication comes before the key
    if needed == "window" and not is_anonymous(named):
        return _scope_of(request, caller=caller, principal=named, key=""), None
    if token is None:
        if given is None:
            raise key_missing(header)
        return _by_header(request, given, caller=caller, principal=named, header=header)
    taken = tokens.read(token, principal=named)
    if given is not None:
        raise key_invalid(f"send an {header} or an Idempotency-Token, not both", header)
    return _by_token(taken)


def _by_header(request: HttpRequest, given: str, *, caller: Any, principal: str, header: str) -> tuple[str, Key]:
    key = keys.parse_key(given, header=header)
    # a token counts once by whichever header it comes
    taken = tokens.issued_here(key, principal=principal) if keys.may_be_token(key) else None
    if taken is not None:
        return _by_token(taken)
    if is_anonymous(principal) and not keys.is_hard_to_guess(key):
        raise key_weak()
    return _scope_of(request, caller=caller, principal=principal, key=key), key


def _by_token(taken: tokens.Taken) -> tuple[str, Key]:
    if taken.refused is not None:
        return taken.scope, partial(tokens.key_of_try, taken)
    if taken.expired and ledger.find(scope=taken.scope, key=taken.key) is None:
        raise token_unknown()
    return taken.scope, taken.key


@lru_cache(maxsize=64)
def _in_meta(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


def key_in_window(scope: str, content: bytes, *, seconds: float) -> str:
    """Return the key of an unkeyed call: one query."""
    # digits of one width, behind a letter: their order is the same in every collation
    stem = f"w{fingerprint.lasting(content).hex()}n"
    youngest = ledger.youngest(
        scope=scope, first=stem + "0" * GENERATION_DIGITS, last=stem + "9" * GENERATION_DIGITS
    )
    if youngest is None:
        return stem + "0" * GENERATION_DIGITS
    key, age_seconds = youngest
    if age_seconds is None or age_seconds < seconds:
        return key
    return f"{stem}{int(key.removeprefix(stem)) + 1:0{GENERATION_DIGITS}}"


def _scope_of(request: HttpRequest, *, caller: Any, principal: str, key: str) -> str:
    """Return the caller's scope at this route; the anonymous one, if their key was answered before the session."""
    method = request.method or ""
    route = request.resolver_match.route if request.resolver_match else request.path
    if principal.startswith("session:"):
        before = keys.scope_of(principal=anonymous_like(principal), method=method, route=route)
        if was_answered(caller.session, scope=before, key=key):
            return before
    return keys.scope_of(principal=principal, method=method, route=route)


def _token_of_form(request: HttpRequest) -> str | None:
    is_form = request.content_type in {"application/x-www-form-urlencoded", "multipart/form-data"}
    return request.POST.get("idempotency_token") if is_form else None
