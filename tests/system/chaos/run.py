"""One run: a lab, faults and visits of a seed, and what the checker says about it."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import readymade
from tests.system.chaos import plan, stage
from tests.system.chaos.clients import Shop, shopping
from tests.system.chaos.faults import Breaker
from tests.system.chaos.history import History
from tests.system.chaos.lab import Lab
from tests.system.chaos.recovery import judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        statuses: how often what was answered.
        done: how often what kind of intent had its effect.
        folder: logs and history, if they were kept: with a violation, or with an answer of 500.
    """

    requests: int
    faults: int
    violations: list[str]
    statuses: Counter[str]
    done: Counter[str]
    folder: Path | None


def run(seed: int, *, duration: float, say: Callable[[str], object], keep: bool = False) -> Outcome:
    """Run the seed.

    Args:
        duration: seconds of load and faults; starting, recovery and the verdict come on top.
        say: called with the progress, a line each time.
        keep: leave logs and history where they are, also without a violation.
    """
    folder = Path(tempfile.mkdtemp(prefix="po-"))
    folder.chmod(0o755)  # PostgreSQL's user must come through
    readymade.lay_out(folder)
    lab = Lab(folder, web=plan.WEBS, clocks=plan.clocks(seed))
    history = History()
    violations = ["the run did not end"]
    try:
        lab.start()
        with lab.database() as database:
            built = stage.build(database)
        history = History()
        shop = Shop(lab.urls, lab.plan.sandbox_url, history)
        try:
            breaker = Breaker(lab, plan.faults(seed, duration=duration), plan.weather(seed), say)
            with shopping(shop, [plan.visits(seed, client) for client in range(plan.CLIENTS)]):
                breaker.run(duration=duration)
            say(f"load is over, {history.requests} requests; coming to rest")
            violations = judge(lab, shop, built, seed=seed)
        finally:
            shop.close()
    finally:
        lab.stop()
        history.write(folder / "history.jsonl")
        (folder / "plan.txt").write_text(plan.described(seed, duration=duration))
        errors = any(status.startswith("500") for status in history.statuses)  # breaks no promise, but why?
        if not (violations or errors or keep):
            shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        requests=history.requests,
        faults=breaker.begun,
        violations=violations,
        statuses=history.statuses,
        done=Counter(intent.kind for intent in history.of() if intent.is_done),
        folder=folder if folder.exists() else None,
    )
