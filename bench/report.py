"""Tables and bar charts under bench/results."""

import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import django
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from bench.harness import ratio

RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")
GREY, GREEN, BLACK = "#9aa5b1", "#0b7a4b", "#14171a"


def write(
    *,
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str,
    bars: Mapping[str, Sequence[tuple[str, float]]] | None = None,
    x_label: str = "ratio to the bare view",
    bases: Sequence[str] = (),
) -> None:
    """Write `name`.md and, with `bars`, `name`.png; print the table.

    Args:
        bars: group -> (label, ratio); no chart without them.
        bases: labels of the grey bars; the first of each group if empty.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    if bars:
        _draw(RESULTS / f"{name}.png", title, bars, x_label, bases)
    table = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
    table.insert(1, "|" + "---|" * len(columns))
    machine = (
        f"Python {platform.python_version()}, Django {django.__version__}, {os.cpu_count()} cores, {sys.platform}"
    )
    made = f"Made by `make bench` on {datetime.now(UTC):%Y-%m-%d}. {machine}. {note}"
    picture = [f"![{title}]({name}.png)", ""] if bars else []
    (RESULTS / f"{name}.md").write_text("\n".join([f"# {title}", "", *table, "", *picture, made, ""]))
    print("\n".join(["", title, *table, ""]), flush=True)


def compare(
    name: str,
    title: str,
    seen: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    base: str,
    unit: str = "requests",
    note: str,
) -> None:
    """Write a table and a chart of ways that took turns.

    Args:
        seen: group -> way -> rates a second, one a round.
        base: the way that is 1.00 in each group.
    """
    bars = {
        group: [(way, ratio(found, rates[base])) for way, found in rates.items()] for group, rates in seen.items()
    }
    rows = [
        [group, way, f"{statistics.median(seen[group][way]):.0f}", f"{value:.2f}"]
        for group, values in bars.items()
        for way, value in values
    ]
    note += f" Rounds in turns; medians, the ratio of each round's own. Load average {os.getloadavg()[2]:.1f}."
    columns = ("", "way", f"{unit} a second", "ratio")
    x_label = f"{unit} a second, ratio to: {base}"
    write(name=name, title=title, columns=columns, rows=rows, bars=bars, bases=(base,), x_label=x_label, note=note)


def _draw(
    path: Path,
    title: str,
    bars: Mapping[str, Sequence[tuple[str, float]]],
    x_label: str,
    bases: Sequence[str],
) -> None:
    most = max(len(values) for values in bars.values())
    size = (max(5.2 * len(bars), 8.0), max(3.4, 0.4 * most))
    figure, axes = plt.subplots(1, len(bars), figsize=size, squeeze=False)
    for axis, (group, values) in zip(axes[0], bars.items(), strict=True):
        labels = [label for label, _ in values]
        colors = [GREY if label in (bases or labels[:1]) else GREEN for label in labels]
        drawn = axis.barh(labels, [value for _, value in values], color=colors)
        axis.bar_label(drawn, fmt="%.2f", padding=4, bbox={"color": "white", "pad": 1})
        axis.axvline(1, color=BLACK, linewidth=0.8, zorder=0)
        axis.invert_yaxis()
        axis.set_title(group, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        if axis is not axes[0][0] and labels == [label for label, _ in next(iter(bars.values()))]:
            axis.set_yticklabels([])
    figure.suptitle(title, fontsize=12)
    figure.supxlabel(x_label, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
