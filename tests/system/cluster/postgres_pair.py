"""A real primary and synchronous standby, with deploy/postgresql/primary.conf."""

import shutil
import signal
import subprocess
from pathlib import Path

import psycopg

from shop.devserver.cluster import ensure_cluster, socket_folder
from shop.devserver.embedded import DATABASE
from shop.devserver.guardian import Guardian
from tests.running import until
from tests.system.cluster.deployment import DEPLOY, takes_connections

CONF = DEPLOY / "postgresql" / "primary.conf"


class Pair:
    """Two servers; `kill_primary`, then `promote` the other. Stopped by the guardian."""

    def __init__(self, guardian: Guardian, folder: Path) -> None:
        self._guardian = guardian
        self._sockets: list[Path] = []
        (folder / "first").mkdir(parents=True)
        self._made = ensure_cluster(folder / "first", guardian)
        self._folders = [self._made.folder, folder / "second" / "postgresql"]
        shutil.copy(CONF, self._made.folder / "payonce.conf")
        with (self._made.folder / "postgresql.conf").open("a") as conf:
            conf.write("include 'payonce.conf'\n")
        self._primary = self._start(0)
        with self._connect(0) as connection:
            # nobody could acknowledge a commit yet
            connection.execute("SET synchronous_commit = local")
            connection.execute(f'CREATE DATABASE "{DATABASE}"')
        self._copy()
        self._start(1)
        until(lambda: self._standbys() == ["quorum"])

    @property
    def url(self) -> str:
        """Of whichever takes writes."""
        hosts = ",".join(map(str, self._sockets))
        return f"postgresql://postgres@/{DATABASE}?host={hosts}&target_session_attrs=read-write"

    def connect(self) -> psycopg.Connection:
        """A connection to the one that takes writes; close it."""
        return psycopg.connect(self.url, autocommit=True)

    def kill_primary(self) -> None:
        """As a power cut does it, children and all."""
        self._guardian.stop(self._primary)

    def promote(self) -> None:
        """The standby is the primary now, and goes on alone (docs/how-to/fail-over.md)."""
        with self._connect(1) as connection:
            connection.execute("SELECT pg_promote()")
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("SELECT pg_reload_conf()")

    def _standbys(self) -> list[str]:
        with self._connect(0) as connection:
            return [state for (state,) in connection.execute("SELECT sync_state FROM pg_stat_replication")]

    def _start(self, index: int) -> "subprocess.Popen[bytes]":
        folder = self._folders[index]
        sockets = socket_folder(folder.parent, "postgresql", user=self._made.user)
        self._sockets.append(sockets)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(sockets),
            "max_connections": "100",
            "shared_buffers": "64MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = self._guardian.start(
            [str(self._made.binaries / "postgres"), "-D", str(folder), *options],
            log=folder.parent / "postgresql.log",
            stop_signal=signal.SIGKILL,
            user=self._made.user,
        )
        until(lambda: takes_connections(self._url(index)))
        return server

    def _url(self, index: int) -> str:
        return f"postgresql://postgres@/postgres?host={self._sockets[index]}"

    def _connect(self, index: int) -> psycopg.Connection:
        return psycopg.connect(self._url(index), autocommit=True)

    def _copy(self) -> None:
        parent = self._folders[1].parent
        parent.mkdir()
        user = self._made.user
        if user is not None:
            shutil.chown(parent, user, user)
        subprocess.run(
            [
                *(str(self._made.binaries / "pg_basebackup"), "--pgdata", str(self._folders[1])),
                *("--host", str(self._sockets[0]), "--username", "postgres"),
                *("--wal-method", "stream", "--checkpoint", "fast", "--write-recovery-conf"),
            ],
            user=user,
            cwd="/",
            check=True,
            capture_output=True,
        )
