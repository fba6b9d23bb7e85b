"""Reader of the documentation's pages: their code blocks, run as a project would have them."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def text_of(page: str) -> str:
    """Read a page, by its path from the root of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str = "python") -> list[str]:
    """List a page's code blocks in this language; unpack them, so that one more is noticed."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def run(block: str, **given: Any) -> dict[str, Any]:
    """Run a block with names of the reader's project; return these and its own."""
    names: dict[str, Any] = {"__name__": "page", **given}
    exec(compile(block, "page", "exec"), names)
    return names
