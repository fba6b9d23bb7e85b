"""pytest plugin (`-p tests.servers`): real PostgreSQL and Redis; under CI a skip fails.

Loaded before Django's settings are. Where `DATABASE_URL` and `REDIS_URL` are set, those servers are used.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from shop.devserver.embedded import EmbeddedServers

# of one process as if each were one file: their files share a shop and a browser, or a project
FOLDERS = ("tests/system/browser/", "tests/foreign/")
LONG = (
    *FOLDERS,
    "tests/system/secrets/test_nothing",
    "tests/system/crash",
    "tests/system/chaos",
    "tests/system/concurrency/test_three",
    "tests/system/test_embedded",
    "tests/system/money",
    "tests/system/protocol",
    "tests/system/stores",
    "tests/integration/idempotency/locks",
    "tests/integration/payments",
    "tests/integration",
)

NOWHERE = "postgresql://nowhere/nothing"

_started: list[EmbeddedServers] = []
_skipped: list[str] = []

os.environ.setdefault("SECRET_KEY", "tests-only-" + "x" * 50)
os.environ.setdefault("PUBLIC_URL", "http://testserver")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start missing servers in the tests' data folder; with `-n` each process has its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and os.environ.get("DATABASE_URL") == NOWHERE:
        del os.environ["DATABASE_URL"], os.environ["REDIS_URL"]
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return
    if not worker and getattr(early_config.known_args_namespace, "numprocesses", None):
        # this process only hands tests out: it has settings to load, and nothing to ask a server
        os.environ.update(DATABASE_URL=NOWHERE, REDIS_URL="redis://nowhere")
        return
    data_dir = Path(os.environ.get("TEST_DATA_DIR", Path(__file__).parent.parent / ".data" / "test"))
    servers = EmbeddedServers(data_dir / worker, durable=False)
    servers.start()
    _started.append(servers)
    os.environ.update(servers.environment)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n` the longest begin first, so that no process waits for the other's last one."""

    def place(item: pytest.Item) -> int:
        return next((at for at, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share files and `FOLDERS` out."""
    from xdist.scheduler import LoadFileScheduling  # not every run has it

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next(filter(nodeid.startswith, FOLDERS), str(super()._split_scope(nodeid)))

    return Scheduling(config, log)


def pytest_unconfigure() -> None:
    """Stop what was started."""
    while _started:
        _started.pop().stop()


def pytest_runtest_logreport(report: Any) -> None:
    """Remember every skip and its reason."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append(f"{report.nodeid}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With `CI=true` a skip is a failure."""
    if _skipped and os.environ.get("CI") == "true":
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("")
            reporter.write_line("Skipped under CI, which counts as failed:", red=True)
            for line in _skipped:
                reporter.write_line(f"  {line}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
