"""What the wheel brings, what it needs at least, and how little a project has to write."""

import ast
import re
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from idempotency.extras import PACKAGES
from tests.foreign.foreign import DOCS, PROJECT, ForeignProject, Wheels

VARIANTS = ("with_redis", "without_redis")
NEEDED = {"django", "redis", "psycopg"}
EXTRAS = {*PACKAGES, "metrics", "tracing"}  # two that are silent when missing

LIST_DISTRIBUTIONS = """
import json, re
from importlib import metadata
print(json.dumps(sorted(re.sub("[-_.]+", "-", d.metadata["Name"]).lower() for d in metadata.distributions())))
"""

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
import django
from django.conf import settings
settings.configure(
    SECRET_KEY="x" * 50,
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "idempotency"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"}},
)
django.setup()
import idempotency
lacking = {}
def look(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        try:
            found = importlib.import_module(module.name)
        except ImportError as error:
            lacking[module.name] = str(error)
        else:
            if module.ispkg:
                look(found)
look(idempotency)
print(json.dumps({"lacking": lacking, "others": sorted({"shop", "payments"} & set(sys.modules))}))
"""


def about(wheel: Path) -> Message:
    """Metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def required(wheel: Path) -> tuple[set[str], set[str]]:
    """Names of what the wheel needs always, and of what only an extra adds."""
    lines = about(wheel).get_all("Requires-Dist", [])
    always, extra = set(), set()
    for line in lines:
        name = line.split(";")[0].strip()
        for sign in "<>=~![ ":
            name = name.split(sign)[0]
        (extra if "extra ==" in line else always).add(name.lower())
    return always, extra - always


def packages(wheel: Path) -> set[str]:
    """Top-level packages of a wheel."""
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def test_each_wheel_has_one_package_and_both_the_tags_version_and_addresses(wheels: Wheels) -> None:
    assert packages(wheels.payonce) == {"idempotency"}
    assert packages(wheels.payments) == {"payments"}
    payonce, payments = (about(wheel) for wheel in (wheels.payonce, wheels.payments))
    assert payonce["Version"] == payments["Version"] == "7.8.9"
    urls = [f"Documentation, {DOCS}", "Source, https://git.example.org/us/payonce"]
    assert payonce.get_all("Project-URL") == payments.get_all("Project-URL") == urls
    assert f"payonce=={payonce['Version']}" in (payments.get_all("Requires-Dist") or [])
    assert set(payonce.get_all("Provides-Extra") or []) == EXTRAS


def test_the_wheels_carry_what_python_does_not_import(wheels: Wheels) -> None:
    names = {name for wheel in (wheels.payonce, wheels.payments) for name in zipfile.ZipFile(wheel).namelist()}
    scripts = ("redis/scripts/claim", "redis/scripts/release", "cachedmap/scripts/cachedmap")
    assert {f"idempotency/{script}.lua" for script in scripts} <= names
    assert "idempotency/templates/admin/idempotency/ledgerentry/statistics.html" in names
    assert "idempotency/migrations/0001_squashed_0006_no_tallies.py" in names
    assert {"idempotency/py.typed", "idempotency/static/idempotency/payonce.js"} <= names
    assert {"payments/py.typed", "payments/templates/admin/payments/confirm.html"} <= names


def test_without_extras_it_installs_only_what_the_app_needs(wheels: Wheels, python: Path) -> None:
    always, extra = required(wheels.payonce)
    assert always == NEEDED
    project = ForeignProject(python, python.parents[2] / "listing", "with_redis")
    installed = set(project.evaluate(LIST_DISTRIBUTIONS))
    assert {*NEEDED, "payonce"} <= installed
    assert len(extra) >= len(EXTRAS)
    assert not extra & installed


def test_only_the_optional_parts_cannot_be_imported(python: Path) -> None:
    """Each module of the app is imported, in a process that has no extra."""
    project = ForeignProject(python, python.parents[2] / "importing", "with_redis")
    found = project.evaluate(IMPORT_EVERYTHING)
    named = {f"idempotency.{extra}": extra for extra in ("client", "drf", "ninja")}
    named["idempotency.locks.zookeeper"] = "zookeeper"
    of_kazoo = {f"idempotency.locks.engine.{module}" for module in ("nodes", "queues")}
    assert found["lacking"].keys() == {*named, *of_kazoo, "idempotency.testing.fixtures"}
    for module, extra in named.items():
        assert found["lacking"][module] == f"{module} needs {PACKAGES[extra]}: pip install 'payonce[{extra}]'"
    assert found["others"] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_three_lines_of_settings_are_enough(name: str) -> None:
    statements = ast.parse((PROJECT / f"{name}.py").read_text()).body
    docstring, plain, *ours = statements
    assert isinstance(docstring, ast.Expr)
    assert isinstance(plain, ast.ImportFrom)
    assert plain.module == "settings"
    assert len(ours) == 3
    assert all(line.lineno == line.end_lineno for line in ours)


@pytest.mark.parametrize(
    ("door", "settings", "most"),
    [("token_api", 3, 5), ("checkout", 3, 6), ("ninja_api", 3, 5), ("tasks_api", 2, 4)],
)
def test_a_door_takes_few_lines(door: str, settings: int, most: int) -> None:
    """With those of the settings. A form's page has two more: its tag, and the library of that."""
    code = (PROJECT / "doors" / f"{door}.py").read_text()
    ours = set(re.findall(r"^ *(?:from idempotency|import idempotency|@idempotent|@once).*$", code, re.MULTILINE))
    assert 2 <= len(ours) <= most - settings
