"""One gunicorn a variant, on a database and a Redis database of its own."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis
from django import db

from bench.peer_venvs import ROOT, PeerUnavailableError, python_of
from bench.variants import Variant
from shop.devserver.cluster import end_of
from shop.devserver.guardian import Guardian

WORKERS = 2
THREADS = 4
DEPLOYED_THREADS = 8  # of a process, as `deploy/gunicorn.conf.py` has it
START_SECONDS = 30.0
LOGS = ROOT / ".data" / "bench-logs"
REDIS_DATABASES = 16  # of a Redis as it comes; the packages' key names differ, so two of them may share one


@dataclass(frozen=True, slots=True)
class Server:
    """A running gunicorn.

    Attributes:
        port: on 127.0.0.1.
        child: its master.
        database_url: of the variant's database.
        redis_url: of the variant's Redis database.
    """

    port: int
    child: "subprocess.Popen[bytes]"
    database_url: str
    redis_url: str

    def rows(self) -> dict[str, int]:
        """How many business rows each reference has."""
        with psycopg.connect(self.database_url) as connection:
            query = "SELECT reference, count(*) FROM plain_purchase GROUP BY reference"
            return dict(connection.execute(query).fetchall())


@contextmanager
def guarded() -> Iterator[Guardian]:
    """A guardian for the servers of one benchmark."""
    LOGS.mkdir(parents=True, exist_ok=True)
    guardian = Guardian()
    try:
        yield guardian
    finally:
        guardian.stop_all()


def require_own_redis() -> None:
    """The benchmarks empty Redis, so they want the one that shop.devserver.embedded starts for them.

    Raises:
        RuntimeError: REDIS_URL may be somebody's.
    """
    if not os.environ.get("REDIS_URL", "").startswith("unix://"):
        raise RuntimeError(
            "This benchmark empties Redis; run it with: python -m shop.devserver.embedded -- python -m bench"
        )


def start(variant: Variant, guardian: Guardian, *, redis_database: int) -> Server:
    """Make the variant's database anew, empty its Redis database, start its server and wait until it answers.

    Raises:
        PeerUnavailableError: it is not to be had, or its server does not come up.
    """
    python = python_of(variant.peer)
    redis_url = re.sub(r"db=\d+", f"db={redis_database % REDIS_DATABASES}", os.environ["REDIS_URL"])
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "bench.plain.settings",
        "BENCH_SETUP": variant.setup,
        "BENCH_MIDDLEWARE": "none" if variant.thin else "startproject",
        "DATABASE_URL": fresh_database(f"bench_{variant.slug}"[:63]),
        "REDIS_URL": redis_url,
    }
    _prepare(python, environment)
    port = _free_port()
    command = [
        *(str(python), "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", str(WORKERS)),
        *("--no-control-socket", "--log-level", "warning"),
    ]
    if variant.asgi:
        command += ["--worker-class", "uvicorn_worker.UvicornWorker", "bench.plain.asgi"]
    else:
        command += ["--worker-class", "gthread", "--threads", str(THREADS), "bench.plain.wsgi"]
    log = LOGS / f"{variant.slug}.log"
    log.unlink(missing_ok=True)
    child = guardian.start(command, log=log, environment=environment, cwd=ROOT)
    _wait_up(port, child, log)
    return Server(port, child, environment["DATABASE_URL"], redis_url)


def start_shop(
    guardian: Guardian,
    environment: dict[str, str],
    *,
    name: str = "shop",
    workers: int = WORKERS,
    threads: int = THREADS,
) -> int:
    """The shop's own application over the benchmark's stores, behind one port in so many processes; the port.

    Args:
        threads: of each process.

    Raises:
        PeerUnavailableError: it does not come up.
    """
    port, log = _free_port(), LOGS / f"{name}.log"
    log.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", str(workers)),
        *("--no-control-socket", "--log-level", "warning", "--keep-alive", "60"),
        *("--worker-class", "gthread", "--threads", str(threads), "shop.wsgi"),
    ]
    settings = {"DJANGO_SETTINGS_MODULE": "bench.settings", "DEBUG": "1"}
    child = guardian.start(command, log=log, environment={**os.environ, **settings, **environment}, cwd=ROOT)
    _wait_up(port, child, log, path="/healthz")
    return port


def start_shops(guardian: Guardian, environment: dict[str, str], *, name: str, processes: int) -> list[int]:
    """So many processes of the shop as a deployment has them, a port each, as behind a balancer; the ports.

    Of one port the kernel gives all senders to one process now and then.
    """
    return [
        start_shop(guardian, environment, name=f"{name}-{number}", workers=1, threads=DEPLOYED_THREADS)
        for number in range(processes)
    ]


def stop(server: Server, guardian: Guardian) -> None:
    """End one server before its guardian ends them all."""
    guardian.stop(server.child)


def fresh_database(name: str) -> str:
    """The address of an empty database of this name; what was there is gone."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    return urlsplit(url)._replace(path=f"/{name}").geturl()


@contextmanager
def on_database(url: str) -> Iterator[str]:
    """This process works on the database at `url` too."""
    usual = db.connection.settings_dict["NAME"]
    db.connection.close()
    db.connection.settings_dict["NAME"] = urlsplit(url).path.lstrip("/")
    try:
        yield url
    finally:
        db.connection.close()
        db.connection.settings_dict["NAME"] = usual


def _prepare(python: Path, environment: dict[str, str]) -> None:
    """Its tables, and the caller as a user: one peer refers to it."""
    migrate = [str(python), "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0"]
    user = "from django.contrib.auth.models import User; User.objects.create(pk=1, username='bench')"
    for command in (migrate, [str(python), "-m", "django", "shell", "--verbosity", "0", "-c", user]):
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise PeerUnavailableError(f"does not start: {last[:160]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_up(port: int, child: "subprocess.Popen[bytes]", log: Path, *, path: str = "/up") -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                return
        except urllib.error.HTTPError as error:
            # it answers; a peer that asks every request for a key may refuse this one
            if error.code < 500:
                return
            reason = f"answers {error.code}"
        except OSError as error:
            reason = str(error)
        if child.poll() is not None or time.monotonic() > deadline:
            raise PeerUnavailableError(f"does not start: {reason}: {end_of(log)[-160:]}")
        time.sleep(0.1)
