"""Check of commit subjects: `area: what`, imperative, at most 72 characters.

    python deploy/check_commits.py              every commit after the one that added this file
    python deploy/check_commits.py FILE         the message in a file, as git's commit-msg hook passes it

A shallow clone is checked as far as it reaches; without git there is nothing to check. Merges and reverts are
exempt.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 72
AREA = re.compile(r"[a-z][\w.,/ -]*: (\w+)")
EXEMPT = re.compile(r"(Merge|Revert) |(fixup|squash)! ")
NO_IMPERATIVE = re.compile(r"\w+(ed|ing)$")
IMPERATIVES = {"embed", "feed", "need", "seed", "shed", "speed", "bring", "string", "ping"}


def fault(subject: str) -> str:
    """Return what is wrong with a subject; empty if nothing is."""
    if EXEMPT.match(subject):
        return ""
    if len(subject) > LONGEST:
        return f"has {len(subject)} characters; {LONGEST} are the most"
    if not (found := AREA.match(subject)):
        return "is not of the form `area: what`"
    verb = found[1].lower()
    if NO_IMPERATIVE.match(verb) and verb not in IMPERATIVES:
        return f"begins with {found[1]!r}; begin with an imperative, such as `add`"
    return ""


def subjects(root: Path = ROOT) -> list[str]:
    """Return the subjects of the commits after the one that added this file, newest first."""
    name = Path(__file__).resolve().relative_to(ROOT).as_posix()
    added = _git(root, "log", "--diff-filter=A", "--format=%H", "--", name)
    if not added:
        return []
    return _git(root, "log", "--no-merges", "--format=%s", f"{added[-1]}..HEAD")


def _git(root: Path, *arguments: str) -> list[str]:
    """Return the lines that git prints; none where there is no repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return done.stdout.splitlines()


def main(arguments: list[str]) -> int:
    """Check the commits, or the message in the file that is named; 1 if a subject is wrong."""
    checked = Path(arguments[0]).read_text(encoding="utf-8").splitlines()[:1] if arguments else subjects()
    wrong = [f"commit subject {subject!r} {reason}" for subject in checked if (reason := fault(subject))]
    sys.stderr.writelines(f"{sentence}\n" for sentence in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
