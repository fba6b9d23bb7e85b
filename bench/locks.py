"""The locks on Redis: ours against what one client and one section allow, and against the peers.

A turn is a process of its own (`bench.lock_worker`) under the interpreter that has the kind of lock. In every
round every kind takes its turn, in an order that alternates; a figure is the median over the rounds. All use the
same Redis over its Unix socket, and redis-py with hiredis in one version.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis

from bench import lock_kinds as kinds
from bench import servers
from bench.lock_kinds import Kind
from bench.peer_venvs import ROOT, PeerUnavailableError, python_of, version_of
from bench.report import write

ROUNDS = 5
SECONDS = 4.0  # of each turn
PROCESSES = 8
SECTION_SECONDS = 0.001
REST_SECONDS = 0.003  # after a release, where the hand-over is measured: the releaser must not be its own rival
KILLS = 3
DEAD_LEASE_SECONDS = 2.0
OUR_LEASE_SECONDS = 30.0  # by default, renewed by the watchdog
MANY = 1000
RENEWAL_SECONDS = 13.0  # a little more than the 10 s between two renewals
QUIET_SECONDS = 10.0  # a waiter far behind asks again every 5 s
TURN_LIMIT_SECONDS = 180

Figures = dict[str, list[dict[str, Any]]]


def run(arguments: Sequence[str] = ()) -> None:
    """Measure, and write bench/results/locks_*.md and .png."""
    parts = {"uncontended": _uncontended, "contended": _contended, "dead": _dead, "many": _many}
    parser = argparse.ArgumentParser(prog="python -m bench locks")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each kind in each round")
    parser.add_argument("--kills", type=int, default=KILLS, help="of each kind, of holders and of waiters")
    parser.add_argument("--only", choices=parts, help="one part")
    given = parser.parse_args(arguments)
    servers.require_own_redis()
    for name, part in parts.items():
        if given.only in (None, name):
            part(given)


class _Runner:
    """Runs turns, and remembers which kinds cannot be had."""

    def __init__(self, wanted: Iterable[Kind]) -> None:
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        for kind in wanted:
            try:
                python_of(kind.peer)
                if kind.peer is not None:
                    self.versions[kind.title] = version_of(kind.peer)
            except PeerUnavailableError as error:
                self.missing[kind.title] = str(error)
        for title in (kinds.REDIS_PY.title, kinds.REDIS_PY_EAGER.title, kinds.ASYNC_REDIS_PY):
            self.versions[title] = redis.__version__

    def has(self, kind: Kind) -> bool:
        return kind.title not in self.missing

    def name(self, title: str) -> str:
        return f"{title} ({self.versions[title]})" if title in self.versions else title

    def turn(self, what: str, kind: Kind | str, **turn: Any) -> dict[str, Any]:
        """One turn on an empty Redis."""
        title = kind if isinstance(kind, str) else kind.title
        with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
            client.flushall()
        command = [str(python_of(None if isinstance(kind, str) else kind.peer)), "-m", "bench.lock_worker"]
        told = json.dumps({"turn": what, "kind": title, **turn})
        done = subprocess.run(
            [*command, told], cwd=ROOT, capture_output=True, text=True, check=False, timeout=TURN_LIMIT_SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{what} of {title} failed:\n{done.stderr[-2000:]}")
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"locks: {what}: {title}: {shown}", flush=True)
        return figures


def _uncontended(given: argparse.Namespace) -> None:
    runner = _Runner(kinds.UNCONTENDED)
    present: list[Kind | str] = [kind for kind in kinds.UNCONTENDED if runner.has(kind)]
    present += kinds.ASYNC
    seen: Figures = defaultdict(list)
    for number in range(given.rounds):
        for kind in _in_turn(present, number):
            what = "async_pairs" if isinstance(kind, str) else "pairs"
            title = kind if isinstance(kind, str) else kind.title
            seen[title].append(runner.turn(what, kind, seconds=given.seconds))
        print(f"locks: uncontended: round {number + 1}/{given.rounds}", flush=True)
    rows, bars = [], []
    for title in [*(kind.title for kind in kinds.UNCONTENDED), *kinds.ASYNC]:
        if title in runner.missing:
            rows.append([title, runner.missing[title], "", ""])
            continue
        ratio = _median(seen[title], "ratio")
        cells = [f"{_median(seen[title], 'rate'):.0f}", f"{ratio:.2f}", f"{_median(seen[title], 'commands'):.2f}"]
        rows.append([runner.name(title), *cells])
        bars.append((title, ratio))
    write(
        name="locks_uncontended",
        title="A lock that nobody else wants: acquire and release",
        columns=("lock", "pairs/s", "ratio to the raw limit", "commands a pair"),
        rows=rows,
        bars={"": bars},
        bases=(kinds.RAW.title, kinds.ASYNC_RAW),
        x_label="pairs a second, ratio to two empty EVALSHA of the same client",
        note=(
            f"{_rounds(given)} One process, one lock, Redis over a Unix socket, commands counted by the server. "
            "The ratio is taken in slices of 0.2 s within a turn; the raw limit's own row shows the noise. Ours "
            "is reentrant and gives a fencing token; the peers' are not, and give none. Ours keeps its default "
            f"lease with its watchdog, the peers' have a lease of {kinds.LEASE_SECONDS} s and none. asyncio "
            "against asyncio's own limit."
        ),
    )


def _contended(given: argparse.Namespace) -> None:
    runner = _Runner(kinds.CONTENDED)
    present = [kind for kind in kinds.CONTENDED if runner.has(kind)]
    rivals: Figures = defaultdict(list)
    resting: Figures = defaultdict(list)
    turn = {"seconds": given.seconds, "processes": PROCESSES, "section": SECTION_SECONDS}
    for number in range(given.rounds):
        for kind in _in_turn(present, number):
            rivals[kind.title].append(runner.turn("contend", kind, **turn, rest=0))
            resting[kind.title].append(runner.turn("contend", kind, **turn, rest=REST_SECONDS))
        print(f"locks: contended: round {number + 1}/{given.rounds}", flush=True)
    columns = (
        *("lock", "acquisitions/s", "part of the bound", "commands each", "most/fewest of a process"),
        *("worst wait s", "to another process/s", "hand-over p50 ms", "p99 ms", "among rivals p50 ms", "p99 ms"),
        "two inside at once",
    )
    rows, bars = [], [("the section alone", 1.0)]
    for kind in kinds.CONTENDED:
        if not runner.has(kind):
            rows.append([kind.title, runner.missing[kind.title], *[""] * (len(columns) - 2)])
            continue
        one, rest = rivals[kind.title], resting[kind.title]
        part = _median(one, "part")
        rows.append(
            [
                runner.name(kind.title),
                f"{_median(one, 'rate'):.0f}",
                f"{part:.2f}",
                f"{_median(one, 'commands'):.2f}",
                f"{_median(one, 'spread'):.2f}",
                f"{_median(one, 'worst'):.3f}",
                f"{_median(one, 'handed'):.0f}",
                *(f"{_median(figures, q) * 1e3:.2f}" for figures in (rest, one) for q in ("p50", "p99")),
                str(sum(figures["overlaps"] for figures in (*one, *rest))),
            ]
        )
        bars.append((kind.title, part))
    write(
        name="locks_contended",
        title=f"{PROCESSES} processes want one lock",
        columns=columns,
        rows=rows,
        bars={"": bars},
        x_label="acquisitions a second, ratio to what the section's length allows",
        note=(
            f"{_rounds(given)} The section is a sleep of {SECTION_SECONDS * 1e3:.0f} ms; the bound is one a "
            "length of that sleep, as measured inside the section of the same turn. Hand-over: from before the "
            "release in one process to after the acquire in another, in turns of their own in which a process "
            f"rests {REST_SECONDS * 1e3:.0f} ms after its release. Among rivals it takes part again at once: a "
            "lock that is polled then mostly goes back to its releaser, and to another process only if that one "
            "asks within the moment in between, which makes its latency look short. "
            f"{_against_peers(rivals, resting)}"
        ),
    )


def _against_peers(rivals: Figures, resting: Figures) -> str:
    """Ours in one sentence a lock: rate, p50 and p99 against each round's best peer."""
    ours = {kind.title for kind in kinds.OURS}
    said = []
    for title in sorted(ours & rivals.keys(), reverse=True):
        ratios = []
        compared = (
            *((rivals, "rate", max), (rivals, "handed", max)),
            *((resting, "p50", min), (resting, "p99", min)),
        )
        for seen, name, best in compared:
            peers = [figures for peer, figures in seen.items() if peer not in ours]
            rounds = range(len(seen[title]))
            ratios.append(
                statistics.median(
                    seen[title][number][name] / best(_known(peer[number][name] for peer in peers))
                    for number in rounds
                )
            )
        rate, handed, p50, p99 = ratios
        said.append(
            f"{title} against the best peer of each round: acquisitions {rate:.2f}, of those to another process "
            f"{handed:.2f}, hand-over p50 {p50:.2f}, p99 {p99:.2f}."
        )
    return " ".join(said)


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)] or [math.nan]


def _dead(given: argparse.Namespace) -> None:
    runner = _Runner(kinds.CONTENDED)
    present = [kind for kind in kinds.CONTENDED if runner.has(kind)]
    holders: Figures = defaultdict(list)
    waiters: Figures = defaultdict(list)
    for number in range(given.kills):
        for kind in _in_turn(present, number):
            lease = DEAD_LEASE_SECONDS
            holders[kind.title].append(runner.turn("dead_holder", kind, lease=lease, counted=lease))
            waiters[kind.title].append(runner.turn("dead_waiter", kind))
        print(f"locks: dead: round {number + 1}/{given.kills}", flush=True)
    renewed = runner.turn("dead_holder", kinds.LOCK, lease=None, counted=OUR_LEASE_SECONDS)["late"]
    rows = []
    for kind in kinds.CONTENDED:
        if not runner.has(kind):
            rows.append([kind.title, runner.missing[kind.title], "", "", ""])
            continue
        late = [[figures["late"] for figures in seen[kind.title]] for seen in (holders, waiters)]
        cells = [f"{value:.3f}" for values in late for value in (statistics.median(values), max(values))]
        rows.append([runner.name(kind.title), *cells])
    write(
        name="locks_dead",
        title="Holders and waiters that die",
        columns=(
            *("lock", "dead holder: s after the lease's end", "worst"),
            *("dead first waiter: s after the release", "worst"),
        ),
        rows=rows,
        bars=None,
        note=(
            f"{given.kills} kills by SIGKILL of each. Holder: lease {DEAD_LEASE_SECONDS:.0f} s, one waiter since "
            "the middle of it; from the acquire of the killed to the waiter's, less the lease. Lock with its "
            f"default of {OUR_LEASE_SECONDS:.0f} s and its watchdog, once: {renewed:.3f} s. Waiter: two wait, "
            "the first is killed, then the holder releases; until the second has it."
        ),
    )


def _many(given: argparse.Namespace) -> None:
    runner = _Runner((*kinds.HELD, *kinds.WAITED))
    columns = (
        *("lock", f"watchdog threads of {MANY} held", "renewal commands each 10 s"),
        *(f"subscribers of {MANY} waiting threads", "connections of the process", "commands/s while they wait"),
    )
    rows = []
    for kind in dict.fromkeys((*kinds.HELD, *kinds.WAITED)):
        if not runner.has(kind):
            rows.append([kind.title, runner.missing[kind.title], *[""] * (len(columns) - 2)])
            continue
        cells = [""] * 5
        if kind in kinds.HELD:
            held = runner.turn("held", kind, count=MANY, seconds=RENEWAL_SECONDS)
            cells[:2] = str(held["threads"]), str(held["commands"])
        if kind in kinds.WAITED:
            waited = runner.turn("waited", kind, count=MANY, seconds=QUIET_SECONDS)
            cells[2:] = str(waited["subscribers"]), str(waited["connections"]), f"{waited['commands']:.0f}"
        rows.append([runner.name(kind.title), *cells])
    write(
        name="locks_many",
        title=f"{MANY} locks held, {MANY} threads waiting, in one process",
        columns=columns,
        rows=rows,
        bars=None,
        note=(
            f"Counted by the server: the renewals of {RENEWAL_SECONDS:.0f} s, in which each lock is renewed once; "
            "the connections beside those that stood before the threads came; commands over "
            f"{QUIET_SECONDS:.0f} s."
        ),
    )


def _in_turn(present: Sequence[Any], number: int) -> Sequence[Any]:
    return present[::-1] if number % 2 else present


def _median(seen: Sequence[Mapping[str, float]], name: str) -> float:
    known = [figures[name] for figures in seen if not math.isnan(figures[name])]
    return statistics.median(known) if known else math.nan


def _rounds(given: argparse.Namespace) -> str:
    return f"{given.rounds} rounds of {given.seconds:g} s each, order alternating, medians."
