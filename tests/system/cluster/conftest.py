"""More than one machine, on one: `make cluster`. Each test has a deployment of its own."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shop.devserver.guardian import Guardian
from tests.processes import a_database, on_the_tests_database
from tests.system.cluster.deployment import Deployment

Deploy = Callable[..., Deployment]


@pytest.fixture
def database_url() -> Iterator[str]:
    """An empty database on the tests' own server."""
    with a_database() as name:
        yield on_the_tests_database(name)["DATABASE_URL"]


@pytest.fixture
def deploy(guardian: Guardian, open_folder: Path) -> Deploy:
    def deployed(**stores: Any) -> Deployment:
        return Deployment(guardian, open_folder, **{"redis_url": os.environ["REDIS_URL"], **stores})

    return deployed
