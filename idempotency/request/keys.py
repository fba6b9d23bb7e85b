"""Keys of headers, scopes of callers and routes, digests of both. Pure: no request, no database."""

import hashlib
import re
import zlib

from django.utils.translation import gettext as _

from idempotency.errors import key_invalid, key_missing

MAX_KEY_LENGTH = 255
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPE = re.compile(r'\\(["\\])')

_URL_SAFE = re.compile(r"[A-Za-z0-9_-]{22,}={0,2}")
_HEXADECIMAL = re.compile(r"[0-9a-f]+", re.IGNORECASE)
HEXADECIMAL_DIGITS = 31  # 124 bits
REPETITIVE = (
    0.75  # deflate leaves 84 % or more of random keys (a million of each kind), 66 % of one half said twice
)


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


def fault_of(key: str) -> str:
    """Describe why a key is not usable; empty for one that is."""
    if not key:
        return _("it is empty")
    if len(key) > MAX_KEY_LENGTH:
        return _("it has %(count)s characters, %(most)s are allowed") % {"count": len(key), "most": MAX_KEY_LENGTH}
    return "" if _VISIBLE_ASCII.fullmatch(key) else _("only visible ASCII characters are allowed")


def is_hard_to_guess(key: str) -> bool:
    """Check if a key can stand alone: a UUID, or 122 bits of URL-safe base64 or hexadecimal digits.

    A UUID is 32 hexadecimal digits. A key that compresses better than random ones is a pattern, however long.
    """
    if not _URL_SAFE.fullmatch(key):
        return False
    digits = key.replace("-", "").replace("_", "")
    if _HEXADECIMAL.fullmatch(digits) and len(digits) < HEXADECIMAL_DIGITS:
        return False
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return len(deflate.compress(key.encode()) + deflate.flush()) >= REPETITIVE * len(key)


def may_be_token(key: str) -> bool:
    """Check if a key has the form of Django's signer: value, time and signature."""
    return key.count(":") == 2


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
    """Name (scope, key) in Redis, logs and admin without showing the key: 64 hexadecimal characters."""
    return hashlib.sha256(f"{scope}\x00{key}".encode()).hexdigest()


def session_digest(session_key: str) -> str:
    """Name a session in a scope without showing the key that opens it."""
    return hashlib.sha256(session_key.encode()).hexdigest()[:32]


def lock_id_of(digest: str, *, schema: str = "") -> int:
    """Number the advisory lock of a key: 64 bits of a digest, signed like PostgreSQL's bigint.

    Two keys that share it (one pair in 2**64) could at worst get "in progress" about each other.

    Args:
        schema: of the ledger (`names.schema`): all schemas of a database share its advisory locks.
    """
    if schema:
        digest = hashlib.sha256(f"{schema}\x00{digest}".encode()).hexdigest()
    return int.from_bytes(bytes.fromhex(digest[:16]), "big", signed=True)
