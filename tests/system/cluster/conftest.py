"""More than one machine, on one: `make cluster`. Each test has a deployment of its own."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shop.devserver.guardian import Guardian
from tests.system.cluster.deployment import Deployment

Deploy = Callable[..., Deployment]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Open to the users that the servers run as."""
    for each in (tmp_path, *tmp_path.parents[:3]):
        each.chmod(each.stat().st_mode | 0o055)
    return tmp_path


@pytest.fixture
def database_url() -> Iterator[str]:
    """An empty database on the tests' own server."""
    url = os.environ["DATABASE_URL"]
    name = f"cluster_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield url.replace("/payonce?", f"/{name}?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def deploy(guardian: Guardian, folder: Path) -> Deploy:
    def deployed(**stores: Any) -> Deployment:
        return Deployment(guardian, folder, **{"redis_url": os.environ["REDIS_URL"], **stores})

    return deployed
