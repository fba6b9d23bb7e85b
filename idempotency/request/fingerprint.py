"""Fingerprint of a request: a keyed digest of its content, stored beside the key.

It is keyed (HMAC), or a reader of the ledger could test guesses of a body; and never mixed into the key, or a
changed body would run as a new request.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import Any

from django.conf import settings
from django.http import HttpRequest, RawPostDataException

# values that differ between two copies of the same form without meaning anything
FORM_NOISE = frozenset({"csrfmiddlewaretoken", "idempotency_token"})

Fingerprint = bytes  # 32 bytes


_name = itemgetter(0)


def _made(object_of: Callable[[list[tuple[str, Any]]], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=object_of,
        parse_int=lambda text: {"number": text},
        parse_float=lambda text: {"number": text},
    )


# made once: `json.loads` and `json.dumps` would make new ones for every body
_decoder = _made(lambda pairs: {"object": sorted(pairs, key=_name)})
_encoder = json.JSONEncoder(separators=(",", ":"))


Ignored = Collection[str] | Callable[[Any], Any]


def canonical(request: HttpRequest, *, ignore: Ignored = ()) -> bytes:
    """Join method, path, query, content type and body of `request` into one unambiguous byte string.

    JSON bodies that differ only in white space or member order are equal; form bodies are compared by their
    fields and files (a retried upload has a new boundary), without the CSRF token.

    Args:
        ignore: JSON members, at any depth, and form fields that do not count; or a function from the JSON body to
            the part of it that does.
    """
    media_type = (request.content_type or "").lower()
    parts = (
        (request.method or "").encode(),
        request.path.encode(),
        request.META.get("QUERY_STRING", "").encode(),
        media_type.encode(),
        _canonical_body(request, media_type, ignore),
    )
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def canonical_value(value: Any) -> bytes:
    """Write a JSON value so that equal ones are equal bytes, as `canonical` does with a JSON body.

    Raises:
        TypeError: it is not JSON.
        ValueError: it is not JSON.
    """
    return _canonical_json(json.dumps(value, allow_nan=False).encode())


def fingerprint(content: bytes) -> Fingerprint:
    """Digest `content` under the current `SECRET_KEY`."""
    return _digest(content, settings.SECRET_KEY)


def lasting(content: bytes) -> Fingerprint:
    """Digest `content` under the oldest secret, which servers of a rotation share."""
    return _digest(content, [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS][-1])


def matches(stored: bytes, current: Fingerprint, content: bytes) -> bool:
    """Check if `stored` is the `current` digest of `content`, or one under a `SECRET_KEY_FALLBACKS`."""
    return hmac.compare_digest(stored, current) or any(
        hmac.compare_digest(stored, _digest(content, secret)) for secret in settings.SECRET_KEY_FALLBACKS
    )


def _digest(content: bytes, secret: str) -> Fingerprint:
    return hmac.digest(_key(secret), content, "sha256")


@lru_cache(maxsize=8)
def _key(secret: str) -> bytes:
    return hashlib.sha256(b"idempotency.request.fingerprint\x00" + secret.encode()).digest()


def _canonical_body(request: HttpRequest, media_type: str, ignore: Ignored) -> bytes:
    if media_type == "application/json" or media_type.endswith("+json"):
        return _canonical_json(request.body, ignore)
    is_form = media_type in {"application/x-www-form-urlencoded", "multipart/form-data"}
    # Django parses forms of POST only; REST framework fills the same attributes for other methods
    if is_form and (request.method == "POST" or request.POST or request.FILES):
        return _canonical_form(request, FORM_NOISE if callable(ignore) else FORM_NOISE.union(ignore))
    with suppress(RawPostDataException):  # a form without fields, already read by REST framework
        return request.body
    return b""


def _canonical_form(request: HttpRequest, noise: frozenset[str]) -> bytes:
    fields = [(name, values) for name, values in request.POST.lists() if name not in noise]
    files = [
        (name, upload.name, upload.content_type, _file_digest(upload))
        for name, uploads in request.FILES.lists()
        for upload in uploads
    ]
    return json.dumps([sorted(fields), sorted(files)]).encode()


def _file_digest(upload: Any) -> str:
    digest = hashlib.sha256()
    for chunk in upload.chunks():
        digest.update(chunk)
    upload.seek(0)
    return digest.hexdigest()


def _canonical_json(body: bytes, ignore: Ignored = ()) -> bytes:
    """Sort members and drop white space; numbers keep their spelling, so 1 and 1.0 differ.

    A body that is not JSON stays as it is: refusing it is the handler's part.
    """
    decoder = _decoder
    if callable(ignore):
        body = _counted(body, ignore)
    elif ignore:
        decoder = _decoder_without(frozenset(ignore))
    try:
        return _encoder.encode(decoder.decode(body.decode())).encode()
    except (ValueError, RecursionError):
        return body


def _counted(body: bytes, part_of: Callable[[Any], Any]) -> bytes:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return json.dumps(part_of(document)).encode()


@lru_cache(maxsize=64)
def _decoder_without(names: frozenset[str]) -> json.JSONDecoder:
    return _made(lambda pairs: {"object": sorted((pair for pair in pairs if pair[0] not in names), key=_name)})
