"""`tests/transactions` and `tests/transaction_hooks` of Django's source distribution, on the session's PostgreSQL."""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import django
import pytest

from tests.sandbox import ROOT

SUITES = ("transactions", "transaction_hooks")


@pytest.fixture(scope="module")
def suite() -> Path:
    """Django's tests of the version that is installed; kept, because pip makes metadata of a source that it gets."""
    kept = ROOT / ".data" / f"django-{django.__version__}"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "django"]
            subprocess.run([*command, f"django=={django.__version__}", "-d", folder], check=True)
            (archive,) = Path(folder).glob("*.tar.gz")
            with tarfile.open(archive) as source:
                source.extractall(folder, filter="data")
            next(Path(folder).glob("*/tests")).parent.rename(kept)
    return kept / "tests"


def test_djangos_own_tests_of_transactions_pass(suite: Path) -> None:
    name = f"suite_{os.getpid()}"
    done = subprocess.run(
        [sys.executable, "runtests.py", *SUITES, "--settings=tests.system.django_suite.deferring", "--parallel=1"],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SUITE_NAME": name},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    report = done.stdout + done.stderr
    assert done.returncode == 0, report[-4000:]
    ran, deferred = re.search(r"Ran (\d+) tests", report), re.search(r"(\d+) blocks deferred", report)
    assert ran is not None
    assert deferred is not None
    assert (int(ran[1]) > 80, int(deferred[1]) > 100) == (True, True), report[-1000:]
