"""`make test` runs every part, whatever the first says, and ends with what failed; CI takes corners of the matrix."""

import ast
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("failing", ["", "tests/unit", "tests/system"])
def test_each_part_runs_and_the_end_names_what_failed(tmp_path: Path, failing: str) -> None:
    python, ran = tmp_path / "python", tmp_path / "ran"
    python.write_text(f'#!/bin/sh\necho "$*" >> {ran}\ncase "$*" in *{failing or "nothing"}*) exit 1;; esac\n')
    python.chmod(0o755)
    made = ["make", "-o", ".venv/dev.stamp", "-o", "programs", "test", f"PY={python}"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False)
    rooms, system = ran.read_text().splitlines()
    assert "tests/unit" in rooms
    assert "tests/system" in system
    assert (done.returncode == 0) == (not failing)
    name = {"tests/unit": "failed: rooms", "tests/system": "failed: system"}.get(failing, "all parts passed")
    assert name in done.stdout + done.stderr


def test_ci_runs_each_python_with_each_django_and_all_stores_of_the_matrix() -> None:
    matrix = (ROOT / "noxfile.py").read_text()
    names = ("PYTHONS", "DJANGOS", "STORES")
    lines = (re.search(rf"^{name} = (.+)$", matrix, re.M) for name in names)
    pythons, djangos, stores = (set(ast.literal_eval(line[1])) for line in lines if line)
    corners = re.findall(r"^corner (\S+) (\S+) (\S+) '(.+)'$", (ROOT / ".ci" / "run").read_text(), re.M)
    elsewhere = {"3.11", "3.14"}  # `make test` runs 3.11, which Django 6 does not; few machines have 3.14
    assert {(python, django) for python, django, *_ in corners} == set(product(pythons - elsewhere, djangos))
    assert {store for _, _, store, _ in corners} | {"redis-6.2"} == stores
    for parts in {parts for *_, parts in corners}:
        made = subprocess.run(
            ["make", "-n", "corner", f"PARTS={parts}"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        paths = re.findall(r"[ =](tests/\S+)", made.stdout)
        assert len(paths) > 3
        assert [path for path in paths if not (ROOT / path).exists()] == []
