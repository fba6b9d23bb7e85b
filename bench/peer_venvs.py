"""The peers' venvs under .data/bench-venvs: each package with what it needs, and nothing of ours."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.variants import Peer

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".data" / "bench-venvs"
CONSTRAINTS = ROOT / "constraints.txt"
INSTALL_SECONDS = 300


class PeerUnavailableError(Exception):
    """The package cannot be installed or does not start; the message says why, for the table."""


@cache
def python_of(peer: Peer | None) -> Path:
    """The interpreter that has `peer` installed (ours for None); installs it on first use.

    Raises:
        PeerUnavailableError: pip's last words.
    """
    if peer is None:
        return Path(sys.executable)
    folder = VENVS / peer.name
    python = folder / "bin" / "python"
    stamp = folder / "requirements.stamp"
    wanted = "\n".join(peer.requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"installing {peer.name}", flush=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    constraints = folder / "constraints.txt"
    constraints.write_text(_constraints_without(peer.unpinned))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
    _run([*pip, *peer.requirements])
    stamp.write_text(wanted)
    return python


def version_of(peer: Peer) -> str:
    """The installed version, for the table."""
    ask = f"import importlib.metadata as m; print(m.version({peer.name!r}))"
    return subprocess.run([python_of(peer), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def _constraints_without(names: tuple[str, ...]) -> str:
    lines = CONSTRAINTS.read_text().splitlines()
    dropped = {name.lower() for name in names}
    return "\n".join(line for line in lines if line.split("==")[0].lower() not in dropped)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"not installed: pip took more than {INSTALL_SECONDS} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if re.match(r"ERROR|error", line)]
        last = (errors or done.stderr.splitlines() or ["no message"])[-1]
        raise PeerUnavailableError(f"not installed: {last.strip()[:160]}")
