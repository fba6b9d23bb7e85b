"""The foreign project: its Python, database, commands and server, and a guest."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import psycopg
import yaml
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Path(__file__).resolve().parent / "project"
SOURCES = ("idempotency", "payments", "shop", "distributions")
RELEASE = {
    "GITHUB_REF_NAME": "v7.8.9",
    "GITHUB_SERVER_URL": "https://git.example.org",
    "GITHUB_REPOSITORY": "us/payonce",
}
DOCS = "https://git.example.org/us/payonce/blob/v7.8.9/docs"  # of that release
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
CHECKED = "System check identified no issues (0 silenced)."
COMMAND_SECONDS = 240
READY_SECONDS = 60
T = TypeVar("T")

_SERVING = re.compile(r"development server at (http://\S+)/")


@dataclass(frozen=True)
class Wheels:
    """The two wheels of this working tree."""

    payonce: Path
    payments: Path


def build_wheels(folder: Path) -> Wheels:
    """Build both wheels in a copy as the release workflow does for its tag, once a folder."""
    source, wheels = folder / "source", folder / "wheels"
    if wheels.exists():
        return _wheels_in(wheels)
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=left)
    for name in ("pyproject.toml", "README.md", "LICENSE", "VERSION"):
        shutil.copy(ROOT / name, source / name)
    run(["sh", "-ec", f"cd {source}\n{_release_step()}"], {**os.environ, **RELEASE})
    backend = tomllib.loads((source / "pyproject.toml").read_text())["build-system"]["requires"]
    _pip("install", "--target", str(folder / "backend"), *backend)
    projects = (str(source), str(source / "distributions" / "payments"))
    pip = [*PIP, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels), *projects]
    run(pip, {**os.environ, "PYTHONPATH": str(folder / "backend")})  # one place to build in for both
    return _wheels_in(wheels)


def _release_step() -> str:
    """Shell lines of the release workflow that say what is released."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    steps = workflow["jobs"]["build"]["steps"]
    return next(str(step["run"]) for step in steps if step.get("name") == "Set version and addresses")


def _wheels_in(folder: Path) -> Wheels:
    ((payonce,), (payments,)) = (list(folder.glob(f"{name}-*.whl")) for name in ("payonce", "payonce_payments"))
    return Wheels(payonce, payments)


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel and what it needs at least, in the tested versions; return its Python."""
    python = folder / "bin" / "python"
    if folder.exists():
        return python
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    constraints = str(ROOT / "constraints.txt")
    _pip("--python", str(python), "install", "--no-compile", "--constraint", constraints, str(wheel))
    return python


def install_beside(wheels: Wheels, folder: Path) -> Path:
    """Install both wheels beside this environment's other packages; return their Python."""
    python = folder / "bin" / "python"
    if folder.exists():
        return python
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    both = (str(wheels.payonce), str(wheels.payments))
    _pip("--python", str(python), "install", "--no-compile", "--no-deps", "--no-index", *both)
    (packages,) = folder.glob("lib/python*/site-packages")
    # a line of a .pth is only a place to look at: the editable installs there stay out
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return python


def at_once(call: Callable[[], T], *, copies: int) -> list[T]:
    """Call from as many threads at once; without a database, unlike `tests.threads`."""
    barrier = threading.Barrier(copies, timeout=60)

    def copy() -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(copies) as pool:
        return [job.result() for job in [pool.submit(copy) for _ in range(copies)]]


def run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run to the end; a failure shows everything that the command printed."""
    if environment is None:  # pip's configuration stays; what would measure or redirect a Python does not
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTHON"))
        }
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS, env=environment
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done


def _pip(*arguments: str) -> None:
    """This environment's pip, as the machine has configured it."""
    run([*PIP, *arguments])


class ForeignProject:
    """A copy of `project` outside of this repository, with a database of its own.

    Args:
        python: of the environment in which the wheel is installed.
        folder: where the copy goes.
        settings: name of the settings module.
    """

    def __init__(self, python: Path, folder: Path, settings: str) -> None:
        self.python, self.folder, self.settings = python, folder, settings
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.database = f"foreign_{uuid4().hex}"
        self._server = os.environ["DATABASE_URL"]
        given = conninfo_to_dict(self._server, dbname=self.database)
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONUNBUFFERED": "1",
            "SECRET_KEY": "foreign-" + uuid4().hex + uuid4().hex,
            "DJANGO_SETTINGS_MODULE": settings,
            **{
                option.envvar.decode(): str(given[option.keyword.decode()])
                for option in pq.Conninfo.get_defaults()
                if option.envvar and option.keyword.decode() in given
            },
        }
        if settings != "without_redis":
            self.environment["REDIS_URL"] = os.environ["REDIS_URL"]

    @contextmanager
    def with_database(self, *, like: "ForeignProject | None" = None) -> Iterator["ForeignProject"]:
        """Its database is there, empty or as another project's is, and gone afterwards."""
        template = sql.Identifier("template1" if like is None else like.database)
        name = sql.Identifier(self.database)
        with psycopg.connect(self._server, autocommit=True) as server:
            server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, template))
            try:
                yield self
            finally:
                server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))

    def connect(self) -> psycopg.Connection:
        """A connection to its database; use it as a context manager."""
        return psycopg.connect(make_conninfo(self._server, dbname=self.database), autocommit=True)

    def rows(self, query: str, *parameters: Any) -> list[Any]:
        """What a query finds in its database."""
        with self.connect() as connection:
            return connection.execute(query, parameters).fetchall()

    def booking(self, booked: dict[str, str]) -> tuple[str, int, int, int]:
        """Status of a booking, how often it was paid, and what was paid and refunded."""
        asked = (
            "SELECT one.status, paid_times, paid_minor, refunded_minor FROM bookings_booking one, payments_payment two"
            " WHERE one.id::text = %s AND two.id = %s"
        )
        (found,) = self.rows(asked, booked["booking"], booked["payment"])
        return tuple(found)  # type: ignore[return-value]

    def effects(self, text: str) -> int:
        """How many notes with this text there are."""
        return int(self.rows("SELECT count(*) FROM notes_note WHERE text = %s", text)[0][0])

    def command(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`manage.py ARGUMENTS`, whatever becomes of it; `more` is added to its environment."""
        return subprocess.run(
            [str(self.python), "manage.py", *arguments],
            check=False,
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )

    def manage(self, *arguments: str, **more: str) -> str:
        """What `manage.py ARGUMENTS` printed; it must succeed."""
        done = self.command(*arguments, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def evaluate(self, source: str) -> Any:
        """What a Python program prints as JSON, run by the project's Python alone."""
        done = run([str(self.python), "-I", "-c", source], self.environment)
        return json.loads(done.stdout)

    @contextmanager
    def serving(self) -> Iterator["Server"]:
        """`manage.py runserver` on a port that the system chooses, ended afterwards."""
        server = Server(self)
        try:
            yield server
        finally:
            server.kill()


class Server:
    """One process of the foreign project, under its settings or others, until it is killed.

    Attributes:
        printed: until its socket listens, the result of the system checks included.
    """

    def __init__(self, project: ForeignProject, settings: str | None = None, *, port: int = 0) -> None:
        self._log = (project.folder / f"server-{uuid4().hex}.log").open("w")
        self._process = subprocess.Popen(
            [str(project.python), "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"],
            cwd=project.folder,
            env={**project.environment, "DJANGO_SETTINGS_MODULE": settings or project.settings},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.printed = ""
        self.url = self._wait_until_bound()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def complaints(self) -> str:
        """Return what it has written to its errors, the issues that its checks found included."""
        return Path(self._log.name).read_text()

    def _wait_until_bound(self) -> str:
        """Wait for the address, printed once the socket listens."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed += line
            if found := _SERVING.search(line):
                return found[1]
        self.kill()
        raise RuntimeError(f"the server did not start:\n{self.printed}{self.complaints()}")


def replayed(answer: httpx.Response) -> bool:
    return answer.headers.get("Idempotent-Replayed") == "true"


class Guest:
    """Somebody with a session, who may call from many threads and outlives the server."""

    def __init__(self, server: Server) -> None:
        self.cookies = httpx.get(f"{server.url}/", trust_env=False).cookies

    def post(self, server: Server, text: str, *, key: str) -> httpx.Response:
        """Leave a note, on a connection of its own."""
        headers = {"X-CSRFToken": self.cookies["csrftoken"], "Idempotency-Key": key}
        with httpx.Client(base_url=server.url, cookies=self.cookies, trust_env=False) as client:
            return client.post("/notes/", json={"text": text}, headers=headers)
