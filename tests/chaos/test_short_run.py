"""One short run of a fixed seed, as `make chaos` does it."""

import re
import subprocess
import sys

import pytest

from tests.sandbox import ROOT

SEED = 7


@pytest.mark.timeout(240)
def test_a_short_run_has_no_violations() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--duration", "15", "--seed", str(SEED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    last = done.stdout.splitlines()[-1]
    counted = re.fullmatch(r"chaos: (\d+) requests, (\d+) faults, 0 violations", last)
    assert counted, last
    assert int(counted[1]) > 20
    assert int(counted[2]) >= 3


def test_a_seed_always_draws_the_same_plan() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.chaos", "--plan", "--seed", "7"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert told[0] == told[1]
    assert "seed 7" in told[0]
