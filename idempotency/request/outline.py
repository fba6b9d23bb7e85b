"""Outline of a call's content: shows what a second call changed, but no value.

A part (path, query, content type, each member of the body) is its name and four bytes of a keyed digest; the route
of a form alone is in words. Content is what `idempotency.request.keys` compares: parts with their lengths for a
request, JSON for a function.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping

from django.conf import settings
from django.urls import Resolver404, resolve
from django.utils.translation import gettext as _

from idempotency.request.keys import FORMS

CONTENT_MAX = 8_192  # bytes; of a larger body only "the body" is known to differ
MEMBERS_MAX = 20
NAME_MAX = 40  # characters
BODY = "body."  # before the name of a member
ROUTE = "route"  # method and pattern: a one-time token's scope names neither

_PARTS = ("method", "path", "query", "type")
_SECRET = "secret"  # noqa: S105  a digest of nothing: two outlines under different secrets are not compared


def outline(content: bytes, *, digest: str) -> dict[str, str]:
    """Map each part of `content` to its digest: 8 hex digits under the oldest secret.

    Args:
        digest: of the call's key: equal values of two keys, as of two callers, look different.
    """
    secret = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS][-1]
    key = hashlib.sha256(f"idempotency.request.outline\x00{digest}\x00{secret}".encode()).digest()
    parts = {_SECRET: b"", **dict(_parts(content))}
    named = {name: hashlib.blake2b(value, key=key, digest_size=4).hexdigest() for name, value in parts.items()}
    return named | _route(parts)


def differences(first: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Say what differs between two calls of one key that do differ, in the active language."""
    if not first or not other:
        return [_("not known: the log does not have the first call")]
    if first.get(_SECRET) != other.get(_SECRET):
        return [_("not known: SECRET_KEY was changed between the two")]
    words = {"path": _("another path"), "query": _("another query"), "type": _("another content type")}
    found = [text for part, text in words.items() if first.get(part) != other.get(part)]
    for name in sorted({*first, *other}):
        if name.startswith(BODY) and first.get(name) != other.get(name):
            found.append(_member(name.removeprefix(BODY), was=name in first, stays=name in other))
    return found or [_("another body")]


def _route(parts: Mapping[str, bytes]) -> dict[str, str]:
    media_type = parts.get("type", b"").decode(errors="replace")  # it may be cut off within a character
    if media_type not in FORMS:  # to look takes 30 µs, and a header's key has it in its scope
        return {}
    try:
        return {ROUTE: f"{parts['method'].decode()} {resolve(parts['path'].decode(errors='replace')).route}"}
    except Resolver404:  # a path below a prefix, or among a tenant's own addresses
        return {}


def _member(name: str, *, was: bool, stays: bool) -> str:
    if was and stays:
        return _("“%(name)s” has another value") % {"name": name}
    return (_("“%(name)s” is left out") if was else _("“%(name)s” is added")) % {"name": name}


def _parts(content: bytes) -> Iterator[tuple[str, bytes]]:
    if content[:1] != b"\x00":  # JSON of a function: a request's begins with eight bytes, the length of its method
        yield from _members(content, is_form=False)
        return
    value = b""
    for name in _PARTS:
        end = 8 + int.from_bytes(content[:8], "big")
        value, content = content[8:end], content[end:]
        yield name, value
    media_type = value.decode(errors="replace")  # the last part
    yield from _members(content[8:], is_form=media_type in FORMS)


def _members(body: bytes, *, is_form: bool) -> list[tuple[str, bytes]]:
    """List the members of a canonical JSON object, or a form's; none of any other body."""
    try:
        found = json.loads(body)
        members = [(name, rest) for part in found for name, *rest in part] if is_form else found["object"]
        return [(BODY + printable(name), json.dumps(value).encode()) for name, value in members[:MEMBERS_MAX]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def printable(name: object, length: int = NAME_MAX) -> str:
    """Shorten a name, without NUL and lone surrogates, which PostgreSQL does not store."""
    text = str(name)[:length]
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)
