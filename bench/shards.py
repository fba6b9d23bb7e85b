"""A ledger in shards, simulated: how evenly nodes are loaded, and what moves when one more comes.

Callers' scopes and their keys are hashed by PostgreSQL itself, with the function that Citus spreads text by, and
cut into shards as Citus cuts them: equal ranges of the hash, given to the nodes in turns. Beside it whole shops,
each with all its tables on one node, moved about until the nodes are as even as shops can make them. Nothing is
measured: the figures are the same on every machine.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from django.db import connection

from bench.report import Panel, Table, write_lines

CALLS = 200_000
CALLERS = 20_000
SHOPS = 200
# a caller's routes and how often each is called
ROUTES = {
    "POST api-orders": 0.5,
    "POST api-order-payment": 0.35,
    "POST api-order-cancel": 0.1,
    "POST api-refunds": 0.05,
}
NODES = (2, 3, 4, 6, 8, 12, 16)
SHARDS = (16, 32, 64, 128, 256)
USUAL_SHARDS, USUAL_NODES = 64, 12
HOT_SHARE = 0.05
SEED = 20261121

MIXES = ("all alike", "Zipf", "one is 5 % of all")
BY_KEY, BY_SCOPE, BY_SHOP = "by key", "by scope", "whole shops"
WHOLE_SHARDS, MODULO = "whole shards", "hash modulo nodes"

Numbers = np.ndarray


@dataclass(frozen=True, slots=True)
class Traffic:
    """Calls of one mix. `keys` and `scopes` have a hash for each call, `shops` the share of each shop."""

    keys: Numbers
    scopes: Numbers
    shops: Numbers


def run(options: Sequence[str] = ()) -> None:
    """Simulate, and write bench/results/shards.*."""
    parser = argparse.ArgumentParser(prog="python -m bench shards")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--calls", type=int, default=CALLS)
    given = parser.parse_args(options)
    print(f"shards: seed {given.seed}", flush=True)
    dice = np.random.default_rng(given.seed)
    mixes = {mix: _traffic(mix, given.calls, dice) for mix in MIXES}
    _report(mixes, given)


def _traffic(mix: str, calls: int, dice: np.random.Generator) -> Traffic:
    callers = dice.choice(CALLERS, size=calls, p=_shares(mix, CALLERS))
    routes = dice.choice(len(ROUTES), size=calls, p=list(ROUTES.values()))
    names = [f"user:{caller} {route}" for caller in range(CALLERS) for route in ROUTES]
    halves = dice.integers(2**63, size=(calls, 2))
    keys = [f"{high:016x}{low:016x}" for high, low in halves.tolist()]
    return Traffic(
        keys=_hashed(keys),
        scopes=_hashed(names)[callers * len(ROUTES) + routes],
        shops=_shares(mix, SHOPS),
    )


def _shares(mix: str, count: int) -> Numbers:
    """How much of all calls each of `count` makes."""
    shares = 1 / np.arange(1, count + 1) if mix == "Zipf" else np.ones(count)
    if mix == MIXES[2]:
        shares[0] = HOT_SHARE / (1 - HOT_SHARE) * (count - 1)
    return shares / shares.sum()


def _hashed(texts: Sequence[str]) -> Numbers:
    """What PostgreSQL's hash of each text is: 32 bits with a sign."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT array_agg(hashtext(text) ORDER BY nth) "
            "FROM unnest(%s::text[]) WITH ORDINALITY AS given (text, nth)",
            [list(texts)],
        )
        return np.array(cursor.fetchone()[0], dtype=np.int64)


def _shards_of(hashes: Numbers, shards: int) -> Numbers:
    """The number of the range that each hash is in."""
    return (hashes + 2**31) * shards // 2**32


def _busiest(hashes: Numbers, *, nodes: int, shards: int) -> float:
    """The calls of the busiest node against the mean of all."""
    loads = np.bincount(_shards_of(hashes, shards) % nodes, minlength=nodes)
    return float(loads.max() / loads.mean())


def _busiest_with_shops(shops: Numbers, *, nodes: int) -> float:
    """The same where shops are moved whole: the largest first, each to the node that has least."""
    loads = np.zeros(nodes)
    for share in sorted(shops, reverse=True):
        loads[loads.argmin()] += share
    return float(loads.max() / loads.mean())


def _moved(hashes: Numbers, *, nodes: int, shards: int) -> dict[str, float]:
    """The share of keys that change their node when one more comes."""
    left = [list(range(node, shards, nodes)) for node in range(nodes)]
    moving: list[int] = []
    while len(moving) < shards // (nodes + 1):
        moving.append(max(left, key=len).pop())
    unsigned = hashes + 2**31
    return {
        WHOLE_SHARDS: float(np.isin(_shards_of(hashes, shards), moving).mean()),
        MODULO: float((unsigned % nodes != unsigned % (nodes + 1)).mean()),
    }


def _report(mixes: Mapping[str, Traffic], given: argparse.Namespace) -> None:
    by_nodes = {mix: _lines(traffic, [(nodes, USUAL_SHARDS) for nodes in NODES]) for mix, traffic in mixes.items()}
    for mix, traffic in mixes.items():
        by_nodes[mix][BY_SHOP] = [_busiest_with_shops(traffic.shops, nodes=nodes) for nodes in NODES]
    by_shards = {
        mix: _lines(traffic, [(USUAL_NODES, shards) for shards in SHARDS]) for mix, traffic in mixes.items()
    }
    alike = mixes[MIXES[0]].keys
    moved = {nodes: _moved(alike, nodes=nodes, shards=USUAL_SHARDS) for nodes in NODES}
    write_lines(
        name="shards",
        title="Past one primary: the busiest node, and what moves",
        tables=[
            _table("", "nodes", NODES, by_nodes),
            _table(f"{USUAL_NODES} nodes, by the number of shards", "shards", SHARDS, by_shards),
            Table(
                title="Keys that move when a node is added",
                columns=["nodes", WHOLE_SHARDS, MODULO],
                rows=[[f"{n} to {n + 1}", *(f"{share:.0%}" for share in moved[n].values())] for n in NODES],
            ),
        ],
        panels=[
            [_panel(f"{USUAL_SHARDS} shards, callers: {mix}", "nodes", NODES, by_nodes[mix]) for mix in MIXES],
            [
                *(
                    _panel(f"{USUAL_NODES} nodes, callers: {mix}", "shards", SHARDS, by_shards[mix], log_x=True)
                    for mix in (MIXES[0], MIXES[2])
                ),
                Panel(
                    title=f"a node is added, {USUAL_SHARDS} shards",
                    x_label="nodes before",
                    y_label="share of keys that move",
                    lines={way: [(nodes, moved[nodes][way]) for nodes in NODES] for way in (WHOLE_SHARDS, MODULO)},
                ),
            ],
        ],
        note=f"Simulated, not measured: {given.calls:,} calls of {CALLERS:,} callers on {len(ROUTES)} routes, "
        f"or of {SHOPS} shops; busiest node against the mean of all; hashes by PostgreSQL; seed {given.seed}.",
    )


def _lines(traffic: Traffic, cases: Sequence[tuple[int, int]]) -> dict[str, list[float]]:
    """The busiest node against the mean, by way of spreading, in the order of the cases (nodes, shards)."""
    return {
        BY_KEY: [_busiest(traffic.keys, nodes=nodes, shards=shards) for nodes, shards in cases],
        BY_SCOPE: [_busiest(traffic.scopes, nodes=nodes, shards=shards) for nodes, shards in cases],
    }


def _table(
    title: str, first: str, steps: Sequence[int], found: Mapping[str, Mapping[str, Sequence[float]]]
) -> Table:
    columns = [(mix, way) for mix, ways in found.items() for way in ways]
    return Table(
        title=title,
        columns=[first, *(f"{mix}: {way}" for mix, way in columns)],
        rows=[
            [str(step), *(f"{found[mix][way][number]:.2f}" for mix, way in columns)]
            for number, step in enumerate(steps)
        ],
    )


def _panel(
    title: str, x_label: str, steps: Sequence[int], found: Mapping[str, Sequence[float]], *, log_x: bool = False
) -> Panel:
    lines = {way: list(zip(steps, values, strict=True)) for way, values in found.items()}
    return Panel(title=title, x_label=x_label, y_label="busiest node / mean", lines=lines, log_x=log_x)
