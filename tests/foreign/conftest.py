"""Wheel and environment, made once; foreign projects with Redis, without, with mistakes."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.foreign.foreign import (
    CHECKED,
    ForeignProject,
    Guest,
    Server,
    Wheels,
    build_wheels,
    install,
    install_beside,
)
from tests.ports import free_port


@contextmanager
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of this run, for one of its processes at a time."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (folder / "foreign.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """The wheels of the working tree."""
    with shared_folder(tmp_path_factory) as folder:
        return build_wheels(folder / "wheels")


@pytest.fixture(scope="session")
def python(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that has `payonce` without extras, and nothing else."""
    with shared_folder(tmp_path_factory) as folder:
        return install(wheels.payonce, folder / "bare" / "venv")


@pytest.fixture(scope="session")
def beside(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with both wheels and what the tests have."""
    with shared_folder(tmp_path_factory) as folder:
        return install_beside(wheels, folder / "beside" / "venv")


@pytest.fixture(scope="session")
def migrated(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignProject]:
    """The foreign project, migrated, whose database others begin with."""
    folder = tmp_path_factory.mktemp("migrated") / "project"
    with ForeignProject(python, folder, "with_redis").with_database() as project:
        project.manage("migrate", "--verbosity", "0")
        yield project


@pytest.fixture(scope="session", params=["with_redis", "without_redis"])
def project(
    request: pytest.FixtureRequest, migrated: ForeignProject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForeignProject]:
    """The foreign project with Redis and without."""
    folder = tmp_path_factory.mktemp("foreign") / "project"
    with ForeignProject(migrated.python, folder, request.param).with_database(like=migrated) as project:
        yield project


@pytest.fixture(scope="session")
def mistaken(migrated: ForeignProject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignProject]:
    """The foreign project under the settings that have mistakes; its database has the ledger."""
    folder = tmp_path_factory.mktemp("foreign") / "project"
    with ForeignProject(migrated.python, folder, "mistakes").with_database(like=migrated) as project:
        yield project


@pytest.fixture(scope="session")
def server(project: ForeignProject) -> Iterator[Server]:
    """Its server, for the tests that do not kill it."""
    with project.serving() as server:
        yield server


@pytest.fixture
def guest(server: Server) -> Guest:
    """Somebody new."""
    return Guest(server)


@contextmanager
def open_hotel(project: ForeignProject, *, providers: dict[str, Any]) -> Iterator[httpx.Client]:
    """Migrate the project that takes payments, and serve it where its providers look for it."""
    port = free_port()
    project.environment |= {"PROVIDERS": json.dumps(providers), "BASE_URL": f"http://127.0.0.1:{port}"}
    with project.with_database():
        project.manage("makemigrations", "bookings", "--verbosity", "0")
        project.manage("migrate", "--verbosity", "0")
        server = Server(project, port=port)
        try:
            assert CHECKED in server.printed
            with httpx.Client(base_url=server.url, trust_env=False) as client:
                yield client
        finally:
            server.kill()
