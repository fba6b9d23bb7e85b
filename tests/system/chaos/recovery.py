"""After the faults: clients ask again for missing answers, timers do the rest."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.system.chaos.checker import Evidence, open_ends, violations
from tests.system.chaos.clients import Shop
from tests.system.chaos.faults import tell_sandbox
from tests.system.chaos.history import History
from tests.system.chaos.lab import Lab
from tests.system.chaos.stage import Stage

REST_SECONDS = 90.0  # production's ten times as many
LOOK_SECONDS = 0.5
ASKERS = 8
REPLAYS = 400  # of so many keys the answer is asked for once more in the end


def judge(lab: Lab, shop: Shop, stage: Stage, *, seed: int = 0, rest_seconds: float = REST_SECONDS) -> list[str]:
    """Wait until the system has come to rest, and name the violations.

    Args:
        lab: nothing in it is broken any more.
        shop: of the clients, with their history, which grows by what is asked here.
        stage: what was there before.
        seed: chooses the keys that are replayed.
        rest_seconds: what is on its way after so long is a violation.
    """
    history = shop.history
    for values in ({}, {"parallel": 4}):
        tell_sandbox(lab, values)
    lab.wait_until_ready()
    deadline = time.monotonic() + rest_seconds
    with ThreadPoolExecutor(max_workers=ASKERS, thread_name_prefix="asker") as pool:
        while True:
            unsettled = [intent for intent in history.of() if not intent.is_settled]
            list(pool.map(lambda intent: shop.send(intent, web=len(intent.answers)), unsettled))
            left = _look(lab, history, stage, at=open_ends)
            if not left or time.monotonic() > deadline:
                break
            lab.supervise()
            time.sleep(LOOK_SECONDS)
        dice = random.Random(f"replays {seed}")
        keyed = [intent for intent in history.of() if intent.key and intent.is_settled]
        for intent in dice.sample(keyed, min(REPLAYS, len(keyed))):
            pool.submit(shop.send, intent, web=dice.randrange(len(lab.urls)))
    return [*left, *_look(lab, history, stage, at=violations)]


def _look(lab: Lab, history: History, stage: Stage, *, at: Callable[[Evidence], list[str]]) -> list[str]:
    with lab.database() as database, lab.sandbox() as sandbox:
        seen = Evidence(
            database=database,
            charges=sandbox.get("/_control/charges").raise_for_status().json(),
            undelivered=sandbox.get("/_control/deliveries").raise_for_status().json()["due"],
            history=history,
            stage=stage,
        )
        return at(seen)
