"""Outline of a call's content: enough to say what a second call changed, and not what either one said.

A part (path, query, content type, each member of the body) is its name and four bytes of a keyed digest. Content
is what `idempotency.request.fingerprint` compares: parts with their lengths for a request, JSON for a function.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping

from django.conf import settings
from django.utils.translation import gettext as _

CONTENT_MAX = 8_192  # bytes; of a larger body only "the body" is known to differ
MEMBERS_MAX = 50
NAME_MAX = 40  # characters
BODY = "body."  # before the name of a member

_PARTS = ("method", "path", "query", "type")
_FORMS = frozenset({b"application/x-www-form-urlencoded", b"multipart/form-data"})
_SECRET = "secret"  # noqa: S105  a digest of nothing: two outlines under different secrets are not compared


def outline(content: bytes) -> dict[str, str]:
    """Name each part of `content` with a digest of its value: 8 hexadecimal digits under the oldest secret."""
    secret = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS][-1]
    key = hashlib.sha256(b"idempotency.observability.outline\x00" + secret.encode()).digest()
    parts = {_SECRET: b"", **dict(_parts(content))}
    return {
        name[: NAME_MAX + len(BODY)]: hashlib.blake2b(value, key=key, digest_size=4).hexdigest()
        for name, value in parts.items()
    }


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


def _member(name: str, *, was: bool, stays: bool) -> str:
    if was and stays:
        return _("“%(name)s” has another value") % {"name": name}
    return (_("“%(name)s” is left out") if was else _("“%(name)s” is added")) % {"name": name}


def _parts(content: bytes) -> Iterator[tuple[str, bytes]]:
    body, media_type = content, b"application/json"
    if content[:1] == b"\x00":  # eight bytes with the length of the method; JSON begins otherwise
        for name in _PARTS:
            end = 8 + int.from_bytes(content[:8], "big")
            media_type = content[8:end]
            yield name, media_type
            content = content[end:]
        body = content[8:]
    is_form = media_type in _FORMS
    for name, value in _members(body, is_form=is_form)[:MEMBERS_MAX]:
        # PostgreSQL stores neither NUL nor half a pair of surrogates
        yield BODY + "".join(each if each.isprintable() else "?" for each in name), json.dumps(value).encode()


def _members(body: bytes, *, is_form: bool) -> list[tuple[str, object]]:
    """List name and value of each member of a canonical JSON object, or field and file of a form."""
    try:
        found = json.loads(body)
        if is_form:
            return [(name, rest) for part in found for name, *rest in part]
        return [(name, value) for name, value in found["object"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []  # neither
