"""Texts of statements that are known to parse: an error would end the transaction."""

import re
from typing import Any

_COMMENT = r"/\*(?:(?!/\*|\*/).)*\*/"
for _ in range(9):  # comments nest
    _COMMENT = rf"/\*(?:(?!/\*|\*/).|{_COMMENT})*\*/"
# comments, texts and names in quotes, and bodies of functions
_NO_CODE = re.compile(
    rf"--[^\n]*|{_COMMENT}"
    r"""|\bE'(?:\\.|[^'\\])*'|'[^']*'|"[^"]*"|\$(\w*)\$.*?\$\1\$"""
    r"|\bBEGIN\s+ATOMIC\b.*?;\s*END\b",
    re.DOTALL | re.IGNORECASE,
)
_ENDS = re.compile(
    r"(?:^|;)\s*(COMMIT|ROLLBACK(?!\s+(?:WORK\s+|TRANSACTION\s+)?TO\b)|ABORT|END|BEGIN"
    r"|START\s+TRANSACTION|PREPARE\s+TRANSACTION)\b",
    re.IGNORECASE,
)

PARSED_MAX = 2048  # texts that are remembered; a project has some hundreds
parsed: set[int] = set()  # by their hashes, which Python makes once a text and 64 bits long


def remember(text: str) -> None:
    if hash(text) not in parsed:
        if len(parsed) >= PARSED_MAX:
            parsed.clear()
        parsed.add(hash(text))


def refuse_end(query: Any, cursor: Any) -> None:
    """Raise RuntimeError for a query in any form that begins or ends a transaction."""
    text = query.decode() if isinstance(query, bytes) else query
    text = text if isinstance(text, str) else text.as_string(cursor)
    if found := _ENDS.search(_NO_CODE.sub(" ", text)):
        raise RuntimeError(
            f"{found[1].upper()} by hand would end the transaction, which commits a handler's writes and what "
            "says that they are done. Remove it: undo a part by transaction.atomic(); a keyed view commits steps "
            "by Mode.PHASED."
        )
