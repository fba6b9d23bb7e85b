"""One short run of a fixed seed, as `make chaos` does it."""

import itertools
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sandbox import ROOT
from tests.system.chaos import faults
from tests.system.chaos.plan import Fault, told

SEED = 7


def test_a_short_run_has_no_violations() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.chaos", "--duration", "15", "--seed", str(SEED)],
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
    command = [sys.executable, "-m", "tests.system.chaos", "--plan", "--seed", "7"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == told(7, duration=60).strip()
    assert "seed 7" in printed


def test_a_sandbox_that_stands_still_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not answer, and the one who waits for it is the one who lets it go on."""
    stopped: list[str] = []
    told_while_stopped: list[bool] = []

    class Lab:
        def pause(self, name: str) -> None:
            stopped.append(name)

        def go_on(self, name: str) -> None:
            stopped.remove(name)

        def supervise(self) -> None: ...

    monkeypatch.setattr(faults, "tell_sandbox", lambda lab, values: told_while_stopped.append(bool(stopped)))
    monkeypatch.setitem(faults.BEGIN, "misbehave", lambda lab, fault: faults.tell_sandbox(lab, fault.values))
    monkeypatch.setitem(faults.BEGIN, "stop", lambda lab, fault: lab.pause(fault.target))
    monkeypatch.setitem(faults.HEAL, "stop", lambda lab, fault: lab.go_on(fault.target))
    common: dict[str, Any] = {"target": "sandbox", "values": {"drop": 1}}
    plan = [
        Fault(at=0, seconds=0.1, kind="misbehave", **common),
        Fault(at=0, seconds=0.2, kind="stop", **common),
        Fault(at=0.1, seconds=9, kind="misbehave", **common),
        Fault(at=0.3, seconds=9, kind="stop", **common),
    ]
    clock = SimpleNamespace(
        monotonic=itertools.count(step=faults.TICK_SECONDS).__next__, sleep=lambda seconds: None
    )
    monkeypatch.setattr(faults, "time", clock)
    breaker = faults.Breaker(Lab(), plan, {})  # type: ignore[arg-type]
    breaker.run(duration=0.5, on_tick=lambda now: None)
    assert told_while_stopped == [False] * 5, "the weather, two beginnings, two ends"
    assert (breaker.begun, breaker.standing, stopped) == (4, [], [])
