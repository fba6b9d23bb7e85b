"""Nothing outlives its starter: a tiny process that stops every registered one when the starter is gone.

It holds the reading end of a pipe whose writing end only the starter has. However the starter ends (Ctrl-C, kill,
kill -9, power of an exception), the pipe closes, and the guardian stops what is still running. It runs in a
session of its own, so that a Ctrl-C in the terminal does not reach it.

Lines on the pipe: ``<pid> <signal number>``. Each process leads a session of its own; the signal goes to it, and
after `GRACE_SECONDS` a SIGKILL to all of its group.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

GRACE_SECONDS = 10.0
POLL_SECONDS = 0.02


class Guardian:
    """Starts processes and promises their end. Not thread-safe; one a starter."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "shop.guardian"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd=Path(__file__).resolve().parent.parent,
        )
        self._children: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []

    def start(
        self,
        command: list[str],
        *,
        log: Path,
        stop_signal: signal.Signals = signal.SIGTERM,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, its output appended to `log`.

        Args:
            command: program and arguments.
            log: file for standard output and error.
            stop_signal: asks it to end in good order.
            environment: its whole environment; ours if None.
            user: system user to run it as (only as root).
        """
        who: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        with log.open("ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
                **who,
            )
        pipe = self._pipe()
        pipe.write(f"{child.pid} {stop_signal.value}\n".encode())
        pipe.flush()
        self._children.append((child, stop_signal))
        return child

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """End one of ours, in good order if it takes it, and wait for it."""
        for known, stop_signal in self._children:
            if known is child and child.poll() is None:
                child.send_signal(stop_signal)
                try:
                    child.wait(GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    kill_group(child.pid)
                    child.wait()
        self._children = [(known, how) for known, how in self._children if known is not child]

    def stop_all(self) -> None:
        """End all of ours, the last started first, and the guardian itself."""
        for child, _ in reversed(list(self._children)):
            self.stop(child)
        with contextlib.suppress(BrokenPipeError):
            self._pipe().close()
        self._guard.wait()

    def _pipe(self) -> IO[bytes]:
        assert self._guard.stdin is not None  # noqa: S101  it was opened with a pipe
        return self._guard.stdin


def kill_group(pid: int) -> None:
    """SIGKILL to the session that `pid` leads; nothing if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process of this id runs (a zombie counts as gone where we can see it)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return True


def main() -> None:
    """Read pids until the pipe closes, then end them, the last one first."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    wards = [tuple(map(int, line.split())) for line in sys.stdin if line.strip()]
    for pid, number in reversed(wards):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        kill_group(pid)


if __name__ == "__main__":
    main()
