"""Checks of the docs without a site: links, anchors, menu, names of files.

    python deploy/check_docs.py

`make docs` finds broken links too; this takes a second and needs nothing installed.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FOLDERS = "idempotency|payments|shop|tests|bench|deploy|docs"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]*[\w/]")
MODULE = re.compile(r"`((?:idempotency|payments|shop|tests|bench)(?:\.[a-z_]\w*)+)")
# dotted names that are no modules: permissions, and attributes of spans
NO_MODULES = {
    "idempotency.close_ledgerentry",
    "idempotency.replay_webhookevent",
    "payments.tell_outcome",
    "payments.replay_delivery",
    "idempotency.mode",
    "idempotency.protocol.exchange",
}


def pages(root: Path) -> list[Path]:
    """Return git's Markdown files, without measured results and the changelog."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [root / name for name in listed.stdout.splitlines() if not name.startswith("bench/results/")]
    return [page for page in found if page.is_file()]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as the site and code hosts make it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip())


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Yield a sentence for each relative link without a file, each anchor without a heading."""
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            yield f"link {link} leads nowhere"
        elif anchor and target.suffix == ".md":
            headings = HEADING.findall(FENCE.sub("", target.read_text(encoding="utf-8")))
            if anchor not in map(slug, headings):
                yield f"link {link} names no heading of {target.name}"


def unknown_names(root: Path, text: str) -> Iterator[str]:
    """Yield a sentence for each file or module that the text names and that does not exist."""
    for path in PATH.findall(re.sub(r"\]\([^)]*\)|https?://\S+", "", text)):
        if "<" not in path and not (root / path).exists():
            yield f"{path} does not exist"
    for name in MODULE.findall(text):
        if name not in NO_MODULES and not _is_module(root, name):
            yield f"{name} is no module, nor a name in one"


def _is_module(root: Path, name: str) -> bool:
    """Follow the packages as far as they go; the rest, if any, must be a name in the last one."""
    place, *rest = name.split(".")
    found = root / place
    while rest and (found / rest[0]).is_dir():
        found /= rest.pop(0)
    if rest and (module := found / f"{rest[0]}.py").is_file():
        rest.pop(0)
        found = module
    if not rest:
        return True
    source = found if found.is_file() else found / "__init__.py"
    return len(rest) <= 2 and re.search(rf"\b{rest[0]}\b", source.read_text(encoding="utf-8")) is not None


def faults(root: Path = ROOT) -> list[str]:
    """Return a sentence for each fault of the documentation."""
    menu = set(re.findall(r"- (?:[^:\n]+: )?([\w/-]+\.md)$", (root / "mkdocs.yml").read_text(), re.MULTILINE))
    found = []
    for page in pages(root):
        name, text = page.relative_to(root).as_posix(), page.read_text(encoding="utf-8")
        sentences = list(broken_links(page, text))
        if name != "CHANGELOG.md":
            sentences += unknown_names(root, text)
        if name.startswith("docs/") and name.removeprefix("docs/") not in menu:
            sentences.append("is in no menu of mkdocs.yml")
        found += [f"{name}: {sentence}" for sentence in sentences]
    return found


if __name__ == "__main__":
    sentences = faults()
    sys.stderr.writelines(f"{sentence}\n" for sentence in sentences)
    sys.exit(bool(sentences))
