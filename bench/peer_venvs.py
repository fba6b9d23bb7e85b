"""The peers' venvs under .data/bench-venvs: each package alone, without ours."""

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
    """A package that cannot be installed or does not start; the message is for the table."""


@cache
def python_of(peer: Peer | None) -> Path:
    """Return the interpreter that has `peer` installed (ours for None); install on first use.

    Raises:
        PeerUnavailableError: the last line of pip.
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
    """Return the installed version."""
    ask = f"import importlib.metadata as m; print(m.version({peer.name!r}))"
    return subprocess.run([python_of(peer), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def _constraints_without(names: tuple[str, ...]) -> str:
    lines = CONSTRAINTS.read_text().splitlines()
    return "\n".join(line for line in lines if line.split("==")[0].lower() not in names)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"not installed: pip took more than {INSTALL_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        reasons = [line for line in error.stderr.splitlines() if line.lower().startswith("error")]
        raise PeerUnavailableError(f"not installed: {reasons[-1][:160] if reasons else error}") from None
