"""One short run of a fixed seed, as `make chaos` does it."""

import os
import re
import subprocess
import sys

from tests.sandbox import ROOT
from tests.system.chaos.plan import described

SEED, SECONDS = 3137, 8  # both stores and a web process die, a provider fails and another is silent


def chaos(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.system.chaos", "--seed", str(SEED), "--duration", str(SECONDS)]
    # a first start's data are shared with this session's other shops
    environment = {"TEST_DATA_DIR": str(ROOT / ".data" / "test"), **os.environ}
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_short_run_has_no_violations() -> None:
    done = chaos()
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    last = done.stdout.splitlines()[-1]
    counted = re.fullmatch(r"chaos: (\d+) requests, 6 faults, 0 violations", last)
    assert counted, last
    assert int(counted[1]) > 20


def test_a_seed_always_draws_the_same_plan() -> None:
    assert chaos("--plan").stdout.strip() == described(SEED, duration=SECONDS).strip()
