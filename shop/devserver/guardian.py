"""A guardian process that stops every registered process once their starter is gone.

It reads a pipe whose writing end only the starter has. However the starter ends (Ctrl-C, kill -9, exception), the
pipe closes and the guardian stops what still runs. A session of its own keeps a Ctrl-C in the terminal from it.

Lines on the pipe: ``<pid> <signal number>``, or ``<pid> 0`` once that process has ended and its id may become
another's. A new process writes its own line before it becomes its program, so it never runs unregistered. In the
end the guardian sends the signal, and after `GRACE_SECONDS` a SIGKILL to the process and its group.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

GRACE_SECONDS = 10.0
POLL_SECONDS = 0.02


class Guardian:
    """Starter of processes that promises their end. Not thread-safe; one a starter."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "shop.devserver.guardian"],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        self._children: dict[subprocess.Popen[bytes], signal.Signals] = {}

    def start(
        self,
        command: list[str],
        *,
        log: Path,
        stop_signal: signal.Signals = signal.SIGTERM,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, its output appended to `log`.

        Args:
            stop_signal: asks it to end in good order.
            environment: its whole environment; ours if None.
            user: system user to run it as (only as root).
            cwd: folder to run it in; ours if None.
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
                cwd=cwd,
                preexec_fn=self._registration(stop_signal),  # noqa: PLW1509  one write, which takes no lock
                **who,
            )
        self._children[child] = stop_signal
        return child

    def run(self, command: list[str], *, environment: Mapping[str, str]) -> int:
        """Run `command` in our terminal and return its exit code, negative for a signal."""
        child = subprocess.Popen(
            command,
            env=environment,
            preexec_fn=self._registration(signal.SIGTERM),  # noqa: PLW1509  as above
        )
        self._children[child] = signal.SIGTERM
        try:
            return child.wait()
        finally:
            self.stop(child)

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """End a child, by its signal if it obeys in time, and forget it."""
        if child in self._children and child.poll() is None:
            child.send_signal(self._children[child])
            try:
                child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                kill(child.pid)
                child.wait()
        self._children.pop(child, None)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe().fileno(), f"{child.pid} 0\n".encode())

    def stop_all(self) -> None:
        """End all children, the last started first, and the guardian."""
        for child in reversed(list(self._children)):
            self.stop(child)
        self._pipe().close()
        self._guard.wait()

    def _registration(self, stop_signal: signal.Signals) -> Callable[[], object]:
        """Return the registration, run by a new process: one write, too short to be torn."""
        pipe = self._pipe().fileno()
        return lambda: os.write(pipe, f"{os.getpid()} {stop_signal.value}\n".encode())

    def _pipe(self) -> IO[bytes]:
        assert self._guard.stdin is not None  # noqa: S101  it was opened with a pipe
        return self._guard.stdin


def kill(pid: int) -> None:
    for send in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Return whether a process of this id runs; a zombie counts as gone where we can see it."""
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
    """Read pids until the pipe closes, then end them, the last first."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    wards: dict[int, int] = {}
    for line in sys.stdin:
        pid, number = map(int, line.split())
        wards.pop(pid, None)
        if number:
            wards[pid] = number
    for pid, number in reversed(wards.items()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        kill(pid)


if __name__ == "__main__":
    main()
