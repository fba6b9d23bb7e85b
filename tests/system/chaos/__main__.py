"""`python -m tests.system.chaos [--duration 60] [--seed 1] [--runs 1] [--plan] [--keep]`

The last line is `chaos: N requests, N faults, 0 violations`. Exit 1, with the seed, on a violation; 2 if the lab itself
failed.
"""

import argparse
import os
import random
import signal
import sys
from subprocess import CalledProcessError

from shop.devserver.embedded import EmbeddedError
from shop.devserver.plan import RunError
from tests.sandbox import ROOT
from tests.system.chaos import plan
from tests.system.chaos.lab import LabError
from tests.system.chaos.run import Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.chaos", description="A seeded fault run of the whole shop."
    )
    parser.add_argument("--duration", type=float, default=60, metavar="SECONDS", help="of load and faults")
    parser.add_argument("--seed", type=_seed, default=None, help="random if none is given, and printed")
    parser.add_argument("--runs", type=int, default=1, help="so many consecutive seeds")
    parser.add_argument("--plan", action="store_true", help="print what would be done, and do nothing")
    parser.add_argument("--keep", action="store_true", help="keep logs and history of sound runs too")
    given = parser.parse_args()
    if not 5 <= given.duration <= 3600 or given.runs < 1:
        parser.error("--duration is 5 to 3600 seconds, --runs at least 1.")
    first = random.randrange(10**6) if given.seed is None else given.seed
    if given.plan:
        print(plan.described(first, duration=given.duration))
        return 0
    os.environ.setdefault("TEST_DATA_DIR", str(ROOT / ".data" / "chaos"))  # beside a run of the tests
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    outcomes: list[Outcome] = []
    seed = first
    try:
        for seed in range(first, first + given.runs):
            print(f"chaos: seed {seed}, {given.duration:g} s", flush=True)
            outcomes.append(run(seed, duration=given.duration, say=_say, keep=given.keep))
            _tell(seed, outcomes[-1], duration=given.duration)
    except (LabError, RunError, EmbeddedError, CalledProcessError) as error:
        print(f"chaos: seed {seed}: the lab failed, which says nothing about the shop: {error}", flush=True)
        return 2
    requests, faults, violations = (
        sum(outcome.requests for outcome in outcomes),
        sum(outcome.faults for outcome in outcomes),
        sum(len(outcome.violations) for outcome in outcomes),
    )
    print(f"chaos: {requests} requests, {faults} faults, {violations} violations", flush=True)
    return 1 if violations else 0


def _seed(text: str) -> int | None:
    """Empty, as make passes it where none is given, is none."""
    return int(text) if text else None


def _say(line: str) -> None:
    print(f"chaos: {line}", flush=True)


def _tell(seed: int, outcome: Outcome, *, duration: float) -> None:
    done = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.done.items()))
    heard = ", ".join(f"{count}× {what}" for what, count in outcome.statuses.most_common())
    print(f"chaos: seed {seed}: done {done}; heard {heard}")
    for violation in outcome.violations:
        print(f"chaos: VIOLATION: {violation}")
    if outcome.violations:
        print(f"chaos: replay with: make chaos DURATION={duration:g} SEED={seed}")
    if outcome.folder is not None:
        print(f"chaos: logs, history and plan are in {outcome.folder}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
