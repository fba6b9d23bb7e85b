"""`make test` runs every part, whatever the first says, and ends with what failed."""

import subprocess
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
