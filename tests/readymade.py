"""The data of a shop after its first start, made once a session and copied."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from shop.devserver.plan import Plan, complete
from tests.sandbox import ROOT

SET_BY_RUN = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "PUBLIC_URL", "DEBUG", "DJANGO_SETTINGS_MODULE")
FIRST_START = "{python} manage.py migrate --verbosity 0 && {python} manage.py load_demo --verbosity 0"


def lay_out(folder: Path) -> None:
    """Fill the empty `folder` with servers' data, keys, schema and demo data."""
    # `cp` keeps the owner, who is not us where we are root
    subprocess.run(["cp", "-a", f"{_made()}/.", str(folder)], check=True)


def clean_environment() -> dict[str, str]:
    """Ours without what the tests' own servers set in it."""
    return {name: value for name, value in os.environ.items() if name not in SET_BY_RUN}


def _made() -> Path:
    """The folder to copy, made by whichever process of this session comes first."""
    root = Path(os.environ.get("TEST_DATA_DIR", ROOT / ".data" / "test")).resolve()
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    place, stamp = root / "ready-made", root / "ready-made.session"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "ready-made.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != session:
            shutil.rmtree(place, ignore_errors=True)
            _make(place)
            stamp.write_text(session)
    return place


def _make(place: Path) -> None:
    """Have a first start's data in the new folder `place`; nothing runs on it afterwards."""
    place.mkdir(mode=0o755)
    environment = complete(Plan(ports=(8000,), sandbox_port=8001, data_dir=place), clean_environment())
    servers = [sys.executable, "-m", "shop.devserver.embedded", "--data-dir", str(place), "--fast", "--"]
    subprocess.run(
        [*servers, "sh", "-c", FIRST_START.format(python=sys.executable)], cwd=ROOT, env=environment, check=True
    )
    shutil.rmtree(place / "run", ignore_errors=True)  # sockets
