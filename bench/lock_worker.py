"""One turn of the lock benchmark, in a process of its own and with the interpreter that has the peer.

`python -m bench.lock_worker '{"turn": "contend", "kind": "Lock", …}'` with REDIS_URL set; the last line that it
prints is the figures as JSON.
"""

import json
import sys
import uuid

from bench import lock_fates, lock_kinds, lock_turns

TURNS = {
    "pairs": lock_turns.pairs,
    "contend": lock_turns.contend,
    "dead_holder": lock_fates.dead_holder,
    "dead_waiter": lock_fates.dead_waiter,
    "held": lock_fates.held,
    "waited": lock_fates.waited,
}


def main(text: str) -> None:
    """Run the turn and print its figures."""
    turn = json.loads(text)
    turn["name"] = f"bench-{uuid.uuid4().hex}"
    if turn["turn"] == "async_pairs":
        figures = lock_turns.async_pairs(turn)
    else:
        figures = TURNS[turn["turn"]](lock_kinds.ALL[turn["kind"]], turn)
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
