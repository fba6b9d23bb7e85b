"""Keys, scopes of callers and routes, digests of both, and fingerprints of contents.

The fingerprint is stored beside the key. It is keyed (HMAC), or a reader of the ledger could test guesses of a
body; and never mixed into the key, or a changed body would run as a new request.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from operator import itemgetter
from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest
from django.core.handlers.wsgi import LimitedStream
from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, RawPostDataException
from django.utils.translation import gettext as _

from idempotency.errors import key_invalid, key_missing

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1 (June 2022)
MAX_KEY_LENGTH = 255
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPE = re.compile(r'\\(["\\])')

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{22,}={0,2}")  # the URL-safe alphabet too
_BETWEEN_DIGITS = re.compile(r"[+/_=-]")
_HEXADECIMAL = re.compile(r"[0-9a-f]+", re.IGNORECASE)
HEXADECIMAL_DIGITS = 31  # 124 bits
# of a key's runs of three characters: 0.82 or more in random keys (a million of each kind), 0.53 in one half twice
DISTINCT = 0.75

FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
FORM_FIELD = "idempotency_token"
# values that differ between two copies of the same form without meaning anything
FORM_NOISE = frozenset({"csrfmiddlewaretoken", FORM_FIELD})
_BLANKS = " \t\n\r"  # of JSON; RFC 8259, section 2
_encoder = json.JSONEncoder(separators=(",", ":"))  # made once: `json.dumps` would make one for every body

Ignored = Collection[str] | Callable[[Any], Any]


def parse_key(value: str | None, *, header: str = "Idempotency-Key") -> str:
    """Read the key of a header, 1..255 visible ASCII characters.

    The quoted form is a string of RFC 8941, section 3.3.3 (February 2021), as in the IETF draft
    draft-ietf-httpapi-idempotency-key-header-07; the bare form is what most clients send. Both name the same key.

    Args:
        header: its name, for the problem's sentence.

    Raises:
        Problem: `idempotency_key_missing` or `idempotency_key_invalid`.
    """
    value = (value or "").strip(" \t")  # RFC 9110, section 5.5: anything else is part of the value
    if not value:
        raise key_missing(header)
    if value.startswith('"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None:
            raise key_invalid("it opens a quoted string but is not one", header)
        value = _ESCAPE.sub(r"\1", quoted[1])
    elif "," in value:  # RFC 9110, section 5.3: two header lines arrive joined by a comma
        raise key_invalid(
            "it has a comma, or stands on two lines; send one line, and a key with a comma in quotes", header
        )
    if fault := fault_of(value):
        raise key_invalid(fault, header)
    return value


def fault_of(key: str, most: int = MAX_KEY_LENGTH) -> str:
    """Describe why a key is not usable; empty for one that is."""
    if not key:
        return _("it is empty")
    if len(key) > most:
        return _("it has %(count)s characters, %(most)s are allowed") % {"count": len(key), "most": most}
    return "" if _VISIBLE_ASCII.fullmatch(key) else _("only visible ASCII characters are allowed")


def is_hard_to_guess(key: str) -> bool:
    """Check if a key can stand alone: a UUID, or 122 bits of base64 or hexadecimal digits.

    A UUID is 32 hexadecimal digits. A key that repeats itself is a pattern, however long.
    """
    if not _BASE64.fullmatch(key):
        return False
    digits = _BETWEEN_DIGITS.sub("", key)
    if len(digits) < HEXADECIMAL_DIGITS and _HEXADECIMAL.fullmatch(digits):
        return False
    runs = set(zip(key, key[1:], key[2:], strict=False))
    return len(runs) >= DISTINCT * (len(key) - 2)


def scope_of(*, principal: str, method: str, route: str) -> str:
    """Name the scope of a key: one caller, one method, one route (the pattern, not the path)."""
    return f"{principal} {method} {route}"


def function_scope_of(*, name: str, principal: str, tenant: str) -> str:
    """Name the scope of a call without HTTP. No scope of a request begins so."""
    parts = {"tenant": tenant, "by": principal, "once": name}
    return " ".join(f"{part}:{value}" for part, value in parts.items() if value)


def token_scope_of(*, principal: str) -> str:
    """Name the scope of a one-time token: one caller, whatever it is used for."""
    return f"{principal} token"


def digest_of(*, scope: str, key: str) -> str:
    """Name (scope, key) in Redis, logs and admin without the key: 64 hexadecimal characters."""
    return hashlib.sha256(f"{scope}\x00{key}".encode()).hexdigest()


def lock_id_of(digest: str, *, schema: str = "") -> int:
    """Number the advisory lock of a key: 64 bits of a digest, signed like PostgreSQL's bigint.

    Two keys that share it (one pair in 2**64) could at worst get "in progress" about each other.

    Args:
        schema: of the ledger (`names.schema`): all schemas of a database share its advisory locks.
    """
    if schema:
        digest = hashlib.sha256(f"{schema}\x00{digest}".encode()).hexdigest()
    return int.from_bytes(bytes.fromhex(digest[:16]), "big", signed=True)


def canonical(request: HttpRequest, *, ignore: Ignored = ()) -> bytes:
    """Join method, path, query, content type and body into one unambiguous byte string.

    JSON bodies that differ only in white space or member order are equal; form bodies are compared by their
    fields and files (a retried upload has a new boundary), without the CSRF token.

    Args:
        ignore: JSON members, at any depth, and form fields that do not count; or a function from the JSON body to
            the part of it that does.

    Raises:
        BadRequest: the body was cut; the key is free for a retry with all of it.
    """
    media_type = (request.content_type or "").lower()
    head = _joined(request.method or "", request.path, request.META.get("QUERY_STRING", ""), media_type)
    stream = _stream_of(request, media_type)  # first: Django replaces it when the body is read
    body = _canonical_body(request, media_type, ignore)
    _refuse_cut(request, stream)
    return head + len(body).to_bytes(8, "big") + body


@lru_cache(maxsize=256)  # mostly the same for all calls of a view
def _joined(*texts: str) -> bytes:
    return b"".join([len(part).to_bytes(8, "big") + part for part in map(str.encode, texts)])


def canonical_value(value: Any) -> bytes:
    """Write a JSON value so that equal ones are equal bytes, as `canonical` does a body.

    A UUID, a date, a time or a Decimal is its text, as Django's encoder has it.

    Raises:
        TypeError: it is not JSON.
        ValueError: it is not JSON.
    """
    return _canonical_json(json.dumps(value, allow_nan=False, cls=DjangoJSONEncoder).encode())


def fingerprint(content: bytes) -> bytes:
    """Digest `content` under the current `SECRET_KEY`: 32 bytes."""
    return _digest(content, settings.SECRET_KEY)


def lasting_fingerprint(content: bytes) -> bytes:
    """Digest `content` under the oldest secret, which servers of a rotation share."""
    return _digest(content, [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS][-1])


def matches(stored: bytes, current: bytes, content: bytes) -> bool:
    """Check if `stored` is the `current` digest of `content`, or one under a former secret."""
    return hmac.compare_digest(stored, current) or any(
        hmac.compare_digest(stored, _digest(content, secret)) for secret in settings.SECRET_KEY_FALLBACKS
    )


def _digest(content: bytes, secret: str) -> bytes:
    return hmac.digest(_key(secret), content, "sha256")


@lru_cache(maxsize=8)
def _key(secret: str) -> bytes:
    return hashlib.sha256(b"idempotency.request.fingerprint\x00" + secret.encode()).digest()


def _stream_of(request: Any, media_type: str) -> Any:
    """Return Django's stream of the body; None where a middleware may have replaced it."""
    stream = getattr(request, "_stream", None)
    if not hasattr(request, "_body"):
        return stream if isinstance(stream, LimitedStream) else None
    # read before us: who reads half of a JSON text refuses it
    is_as_sent = not _is_json(media_type) and "Content-Encoding" not in request.headers
    return stream if isinstance(stream, BytesIO) and is_as_sent else None


def _refuse_cut(request: Any, stream: Any) -> None:
    """Refuse a body of which WSGI servers give what had come when the client went away."""
    if stream is None:
        return
    if isinstance(stream, LimitedStream):
        came, length = stream._pos, stream.limit  # type: ignore[attr-defined]
    else:  # ASGI servers end such a request themselves, and have no environ
        came, length = len(stream.getvalue()), content_length(request) if hasattr(request, "environ") else 0
    if came < length:
        raise BadRequest(f"The body ended after {came} of {length} bytes.")


def content_length(request: HttpRequest) -> int:
    """Read how many bytes of body the sender announces; 0 where that is missing or no number."""
    length = request.META.get("CONTENT_LENGTH") or ""
    # `int` refuses thousands of digits
    return int(length.lstrip("0")[:20] or 0) if length.isdecimal() else 0


def _is_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def _canonical_body(request: HttpRequest, media_type: str, ignore: Ignored) -> bytes:
    if _is_json(media_type):
        return _canonical_json(request.body, ignore)
    is_form = media_type in FORMS
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
    if callable(ignore):
        body, ignore = _part_that_counts(body, ignore), ()
    try:
        text = body.decode().strip(_BLANKS)
        document, end = _decoder_without(frozenset(ignore)).raw_decode(text)
        return _encoder.encode(document).encode() if end == len(text) else body
    except (ValueError, RecursionError):
        return body


def _part_that_counts(body: bytes, part_of: Callable[[Any], Any]) -> bytes:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return json.dumps(part_of(document)).encode()


@lru_cache(maxsize=64)  # `json.loads` would make one for every body
def _decoder_without(names: frozenset[str]) -> json.JSONDecoder:
    name_of = itemgetter(0)

    def sorted_object(pairs: list[tuple[str, Any]]) -> Any:
        left = [pair for pair in pairs if pair[0] not in names] if names else pairs
        return {"object": sorted(left, key=name_of)}

    def spelt_number(text: str) -> Any:
        return {"number": text}

    return json.JSONDecoder(object_pairs_hook=sorted_object, parse_int=spelt_number, parse_float=spelt_number)
