"""The measured servers: gunicorns on databases and Redis databases of their own."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import redis
from django import db

from bench.peer_venvs import ROOT, PeerUnavailableError, python_of
from bench.variants import SHOP, Variant
from shop.devserver.cluster import end_of
from shop.devserver.guardian import Guardian

WORKERS = 2
THREADS = 4
DEPLOYED_THREADS = 8  # of a process, as `deploy/gunicorn.conf.py` has it
START_SECONDS = 30.0
LOGS = ROOT / ".data" / "bench-logs"
SHOP_SETTINGS = {"DJANGO_SETTINGS_MODULE": "bench.settings", "DEBUG": "1"}
REDIS_DATABASES = 16  # of a Redis by default; the packages' key names differ, so two of them may share one


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """A running gunicorn on a port of this machine, its master, and its stores."""

    port: int
    child: "subprocess.Popen[bytes]"
    database_url: str = ""
    redis_url: str = ""

    def rows(self) -> dict[str, int]:
        """Count the business rows of each reference."""
        with psycopg.connect(self.database_url) as connection:
            query = "SELECT reference, count(*) FROM plain_order GROUP BY reference"
            return dict(connection.execute(query).fetchall())


@contextmanager
def guarded() -> Iterator[Guardian]:
    """Give the servers of one benchmark a guardian that ends them."""
    LOGS.mkdir(parents=True, exist_ok=True)
    guardian = Guardian()
    try:
        yield guardian
    finally:
        guardian.stop_all()


def require_own_redis() -> None:
    """Refuse a Redis that may hold somebody's data, because the benchmarks empty it.

    Raises:
        RuntimeError: REDIS_URL is not the one that shop.devserver.embedded starts.
    """
    if not os.environ.get("REDIS_URL", "").startswith("unix://"):
        raise RuntimeError("This benchmark empties Redis. Run it with `make bench`, which starts one of its own.")


def start(variants: Sequence[Variant], guardian: Guardian, *, redis_database: int) -> Server:
    """Start the server that these variants share, and wait for an answer.

    The plain project gets a new database; the shop keeps its own, as its migrations take long.

    Raises:
        PeerUnavailableError: the package cannot be installed, or its server does not come up.
    """
    setup, python = variants[0].setup, python_of(variants[0].peer)
    redis_url = re.sub(r"db=\d+", f"db={redis_database % REDIS_DATABASES}", os.environ["REDIS_URL"])
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    environment = {"REDIS_URL": redis_url}
    if setup == SHOP:
        environment |= {"DATABASE_URL": os.environ["DATABASE_URL"], **SHOP_SETTINGS}
    else:
        address = fresh_database(f"bench_{setup.replace('-', '_')}")
        plain = {"DJANGO_SETTINGS_MODULE": "bench.plain.settings", "BENCH_SETUP": setup}
        environment |= {"DATABASE_URL": address, **plain}
        _prepare(python, {**os.environ, **environment})
    port, child = _gunicorn(
        guardian,
        setup,
        "shop.wsgi" if setup == SHOP else "bench.plain.wsgi",
        environment,
        python=python,
        path="/healthz" if setup == SHOP else "/nothing",
        # forked from a master that has loaded all: a killed worker's successor answers at once
        preload=setup != SHOP,
    )
    return Server(port, child, environment["DATABASE_URL"], redis_url)


def start_shops(guardian: Guardian, environment: Mapping[str, str], *, processes: int) -> list[int]:
    """Start processes of the shop as a deployment has them; return their ports.

    Behind one port the kernel gives all senders to one process now and then.
    """
    setting, names = {**SHOP_SETTINGS, **environment}, [f"{SHOP}-{number}" for number in range(processes)]
    return [
        _gunicorn(guardian, each, "shop.wsgi", setting, path="/healthz", workers=1, threads=DEPLOYED_THREADS)[0]
        for each in names
    ]


def _gunicorn(
    guardian: Guardian,
    name: str,
    application: str,
    environment: Mapping[str, str],
    *,
    path: str,
    python: Path = Path(sys.executable),
    workers: int = WORKERS,
    threads: int = THREADS,
    preload: bool = False,
) -> tuple[int, "subprocess.Popen[bytes]"]:
    """Return the port and the master."""
    port, log = _free_port(), LOGS / f"{name}.log"
    log.unlink(missing_ok=True)
    command = [
        *(str(python), "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", str(workers)),
        *("--no-control-socket", "--log-level", "warning", "--keep-alive", "60"),
        *("--worker-class", "gthread", "--threads", str(threads)),
        *(("--preload",) if preload else ()),
        application,
    ]
    child = guardian.start(command, log=log, environment={**os.environ, **environment}, cwd=ROOT)
    _wait_up(f"http://127.0.0.1:{port}{path}", child, log)
    return port, child


def fresh_database(name: str) -> str:
    """Recreate an empty database of this name, and return its address."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    return urlsplit(url)._replace(path=f"/{name}").geturl()


@contextmanager
def on_database(url: str) -> Iterator[str]:
    """Let this process work on the database at `url` too."""
    before = db.connection.settings_dict["NAME"]
    db.connection.close()
    db.connection.settings_dict["NAME"] = urlsplit(url).path.lstrip("/")
    try:
        yield url
    finally:
        db.connection.close()
        db.connection.settings_dict["NAME"] = before


def _prepare(python: Path, environment: Mapping[str, str]) -> None:
    """Make the tables and the caller of the plain project."""
    command = [str(python), "-m", "bench.plain.prepare"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PeerUnavailableError(f"does not start: {last[:160]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_up(url: str, child: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            status = httpx.get(url, timeout=5).status_code
            if status < 500:  # also without such a page, or where every request needs a key
                return
            reason = f"answers {status}"
        except httpx.TransportError as error:
            reason = str(error)
        if child.poll() is not None or time.monotonic() > deadline:
            raise PeerUnavailableError(f"does not start: {reason}: {end_of(log)[-160:]}")
        time.sleep(0.1)
