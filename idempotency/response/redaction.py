"""Redaction of values that must not be stored: in answers, and in the errors of PostgreSQL.

The first caller gets the answer as the handler made it; a replay, the ledger, Redis and the admin have the mask.
"""

import json
import re
from typing import Any

MASK = "[redacted]"

_DETAIL = r"(?:DETAIL|LINE \d+|HINT|QUERY|CONTEXT): "
# a value may have empty lines in it, so the end is that of the exception's part of a traceback
_END = r"(?:The above exception|During handling)"
_DETAILS = re.compile(rf"\n{_DETAIL}.*?(?=\n\n{_END}|\Z)", re.DOTALL)
# in the traceback of a group every line of an exception has the same margin, those of a value too
_FRAMED = re.compile(rf"\n( +\| ){_DETAIL}[^\n]*(?:\n(?!\1\n\1{_END})\1[^\n]*)*")


def without_details(text: str) -> str:
    """Cut an error's text to PostgreSQL's first line: the others have values."""
    return _DETAILS.sub("", _FRAMED.sub("", text))


def reason_of(error: Exception) -> str:
    """Describe an error in a text that a column can hold, with no value that PostgreSQL quotes."""
    why = f"{type(error).__name__}: {without_details(str(error))}"[:2000]
    return why.encode(errors="replace").decode().replace("\x00", "")


def redacted(body: bytes, *, content_type: str, names: tuple[str, ...]) -> bytes:
    """Replace the value of every JSON member of these names, at any depth, by `MASK`.

    Anything but JSON is returned as it is, and so are bytes without such a member.
    """
    media_type = content_type.split(";", 1)[0].strip().lower()
    if not names or not (media_type == "application/json" or media_type.endswith("+json")):
        return body
    hidden, found = frozenset(names), set[str]()

    def masked(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found.update(hidden.intersection(name for name, _ in members))
        return {name: MASK if name in hidden else value for name, value in members}

    try:
        document = json.loads(body, object_pairs_hook=masked)
    except ValueError:
        return body
    # half of a surrogate pair is no UTF-8, and its escape is JSON
    return json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace") if found else body
