"""Fixtures for every test: a clean marker store, and the real servers' addresses."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from django.db import connection
from django.test import TransactionTestCase
from django.utils import translation
from hypothesis import HealthCheck, settings

from idempotency.ledger import claiming
from idempotency.observability import background
from idempotency.redis import fastpath
from payments.sandbox import state
from shop.devserver.guardian import Guardian
from tests.emptying import empty_tables
from tests.processes import stand_still

# a busy machine is slow, and that is no fault of an example
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# pytest-django's test cases inherit it
TransactionTestCase._fixture_teardown = empty_tables  # type: ignore[method-assign]
# each client loads the machine's authorities again, which takes longer than most calls of a test
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)  # type: ignore[attr-defined]
# five seconds are too few for the answers of a machine that does much else
httpx._config.DEFAULT_TIMEOUT_CONFIG.__init__(60)  # type: ignore[misc]


@pytest.fixture
def redis_server() -> Iterator[redis.Redis]:
    """The tests' own Redis, empty before and after."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=30)
    client.flushall()
    yield client
    client.flushall()
    client.close()


@pytest.fixture
def collector_off() -> Iterator[None]:
    """Keep garbage collection off, whose calls fail at the depth of a body nested too deep."""
    gc.disable()
    yield
    gc.enable()


@contextmanager
def hanging(server: redis.Redis) -> Iterator[None]:
    """The server's process stands still: connections stay, nothing is answered."""
    process = server.info("server")["process_id"]
    stand_still(process)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@contextmanager
def database_away() -> Iterator[None]:
    """No connection to the database can be made, and none is left."""
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    connection.settings_dict["OPTIONS"] = {"host": "/nowhere"}
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["OPTIONS"] = options


@pytest.fixture(scope="session")
def _sweeper() -> Iterator[redis.Redis]:
    """One connection for every test's `_fresh_marker`: a new one takes longer than the sweep."""
    with redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=30) as client:
        yield client


@pytest.fixture(autouse=True)
def _fresh_marker(_sweeper: redis.Redis) -> None:
    """No marker of an earlier test stands in Redis, the breaker is closed.

    Nor is the ledger's epoch read in the middle of a test that counts statements (`idempotency.ledger.claiming`).
    """
    fastpath.breaker.succeeded()
    claiming.use_local_epoch("of-the-tests")
    _sweeper.flushdb()


@pytest.fixture(autouse=True)
def _no_language_outlives_its_test() -> Iterator[None]:
    """A request leaves its language with the thread."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _no_thread_outlives_its_test() -> Iterator[None]:
    """What a test began in the background must not meet the next one, nor its database."""
    yield
    if cache := sys.modules.get("shop.catalog.cache"):
        cache._catalogue.close()  # it listens for as long as its process lives
    assert background.stop(seconds=30) == []


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keys of both sides of the providers; the sandbox's code signs with them here."""
    state.open_folder(tmp_path_factory.mktemp("platform"))
    return state.keys()


@pytest.fixture(scope="session")
def stores() -> Iterator[Callable[[str], Any]]:
    """The session's kinds of Redis by name, each started when it is first asked for."""
    from tests.system.stores.stores import STORES, Store

    started: dict[str, Store] = {}
    with guarded_folder() as (guardian, folder):

        def named(name: str) -> Store:
            if name not in started:
                started[name] = STORES[name](guardian, folder)
            return started[name]

        yield named
        for store in started.values():
            store.close()


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    """Starts processes, none of which outlives the test."""
    made = Guardian()
    yield made
    made.stop_all()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that PostgreSQL's system user may enter, unlike pytest's own where we are root."""
    with a_folder_of_its_own() as folder:
        yield folder


@contextmanager
def guarded_folder() -> Iterator[tuple[Guardian, Path]]:
    """A guardian, and a folder for what its processes store; both end together."""
    guardian = Guardian()
    with a_folder_of_its_own() as folder:
        try:
            yield guardian, folder
        finally:
            guardian.stop_all()


@contextmanager
def a_folder_of_its_own() -> Iterator[Path]:
    """A short path (sockets have a limit), readable by others, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="po-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server_side_binding() -> Iterator[None]:
    """A statement a round trip: what the driver then insists on."""
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    options["server_side_binding"] = True
    yield
    connection.close()
    del options["server_side_binding"]
