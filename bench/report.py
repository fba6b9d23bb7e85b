"""Tables and plots of the benchmarks, under bench/results."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import django
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")


def write(
    *,
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    bars: Mapping[str, Sequence[tuple[str, float]]] | None,
    note: str,
    x_label: str = "ratio to the bare view",
    bases: Sequence[str] = (),
) -> None:
    """Write `name`.md with the table and `name`.png with a group of bars a key of `bars`, and print the table.

    Without `bars` there is no plot. `bases` are the labels of the bars that others are measured against; the first
    one if it is empty.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    versions = f"Python {platform.python_version()}, Django {django.__version__}"
    machine = f"{versions}, {os.cpu_count()} cores, {sys.platform}"
    made = f"Made by `make bench` on {datetime.now(UTC):%Y-%m-%d}. {machine}. {note}"
    plot = [] if bars is None else [f"![{title}]({name}.png)", ""]
    text = "\n".join([f"# {title}", "", *lines, "", *plot, made, ""])
    (RESULTS / f"{name}.md").write_text(text)
    if bars is not None:
        _plot(name, title, bars, x_label, bases)
    print("\n".join(["", title, *lines, ""]), flush=True)


def _plot(
    name: str,
    title: str,
    bars: Mapping[str, Sequence[tuple[str, float]]],
    x_label: str,
    bases: Sequence[str],
) -> None:
    most = max(len(values) for values in bars.values())
    # many bars need a taller figure, and one group alone a wider one
    size = (max(5.2 * len(bars), 8.0), max(3.4, 0.4 * most))
    figure, axes = plt.subplots(1, len(bars), figsize=size, sharex=True, squeeze=False)
    for axis, (group, values) in zip(axes[0], bars.items(), strict=True):
        labels = [label for label, _ in values]
        heights = [value for _, value in values]
        colors = ["#9aa5b1" if label in (bases or labels[:1]) else "#0b7a4b" for label in labels]
        drawn = axis.barh(labels, heights, color=colors)
        axis.bar_label(drawn, fmt="%.2f", padding=4, bbox={"color": "white", "pad": 1})
        axis.axvline(1, color="#14171a", linewidth=0.8, zorder=0)
        axis.invert_yaxis()
        axis.set_title(group, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        if axis is not axes[0][0]:
            axis.set_yticklabels([])
    figure.suptitle(title, fontsize=12)
    figure.supxlabel(x_label, fontsize=9)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)
