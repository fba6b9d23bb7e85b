"""Time-ordered ids without coordination, which fit a provider's 32-character order number."""

import re
import secrets
import time
import uuid
from datetime import datetime

from django.urls import register_converter

_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62


def new_id() -> uuid.UUID:
    """Make a UUID of version 7: 48 bits of Unix time in milliseconds, 74 random bits.

    `.hex` of it is the 32-character form used in addresses and as a provider's order number. Ids of different
    milliseconds sort by time; within one they are random.

    Source: RFC 9562, section 5.7 (May 2024).
    """
    milliseconds = time.time_ns() // 1_000_000
    random_a = secrets.randbits(12)
    random_b = secrets.randbits(62)
    return uuid.UUID(int=(milliseconds << 80) | _VERSION_7 | (random_a << 64) | _VARIANT | random_b)


def first_id(moment: datetime) -> uuid.UUID:
    """Return the lowest number that `new_id` makes at that moment, to bound primary keys."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)


NOBODY = uuid.UUID(int=0)  # names no row of ours: `new_id` never makes it

_WRITTEN = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


class HexIdConverter:
    """Converter of the URL part `<hexid:name>`: 32 hexadecimal characters, a UUID in the view.

    Dashes and capitals are understood. Anything else is `NOBODY`, so that the view answers 404 after it has
    authenticated the caller.
    """

    regex = "[^/]+"

    def to_python(self, value: str) -> uuid.UUID:
        return uuid.UUID(value) if _WRITTEN.fullmatch(value) else NOBODY

    def to_url(self, value: uuid.UUID | str) -> str:
        return value if isinstance(value, str) else value.hex


register_converter(HexIdConverter, "hexid")
