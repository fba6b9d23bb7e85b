"""Tables and plots of the benchmarks, under bench/results."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import django
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")
LINE_COLORS = ("#0b7a4b", "#c2571a", "#2f6fb0", "#14171a", "#9aa5b1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a report.

    Attributes:
        title: its heading; empty for the table that the report is named after.
        columns: their names.
        rows: cells as they are shown.
    """

    title: str = ""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """As Markdown."""
        return [
            f"| {' | '.join(self.columns)} |",
            "|" + "---|" * len(self.columns),
            *(f"| {' | '.join(row)} |" for row in self.rows),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A diagram of lines; those of one name have one colour in all panels of a plot.

    Attributes:
        title: above it.
        x_label: unit and meaning of the first number of each point.
        y_label: of the second.
        lines: name -> points.
        dashed: the same names once more, drawn with dashes (another percentile, say).
        log_x: the first numbers grow by factors, and each is a tick.
        log_y: so do the second.
    """

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    dashed: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False


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
    if bars is not None:
        _plot(name, title, bars, x_label, bases)
    table = Table(columns=columns, rows=rows)
    _save(name, title, [table], note, image="" if bars is None else f"{name}.png")


def write_lines(
    *, name: str, title: str, tables: Sequence[Table], panels: Sequence[Sequence[Panel]], note: str
) -> None:
    """Write `name`.md with the tables and `name`.png with the rows of panels, and print the first table."""
    _plot_lines(name, title, panels)
    _save(name, title, tables, note, image=f"{name}.png")


def write_image(*, name: str, title: str, tables: Sequence[Table], image: str, svg: str, note: str) -> None:
    """Write `name`.md with the tables, and beside it a picture that is there already as text."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / image).write_text(svg)
    _save(name, title, tables, note, image=image)


def _save(name: str, title: str, tables: Sequence[Table], note: str, *, image: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    versions = f"Python {platform.python_version()}, Django {django.__version__}"
    machine = f"{versions}, {os.cpu_count()} cores, {sys.platform}"
    made = f"Made by `make bench` on {datetime.now(UTC):%Y-%m-%d}. {machine}. {note}"
    first, *more = tables
    plot = [f"![{title}]({image})", ""] if image else []
    others = [line for table in more for line in ("", f"## {table.title}", "", *table.lines())]
    text = "\n".join([f"# {title}", "", *first.lines(), "", *plot, made, *others, ""])
    (RESULTS / f"{name}.md").write_text(text)
    print("\n".join(["", title, *first.lines(), ""]), flush=True)


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
    _keep(figure, name)


def _plot_lines(name: str, title: str, panels: Sequence[Sequence[Panel]]) -> None:
    wide, high = max(len(row) for row in panels), len(panels)
    figure, grid = plt.subplots(high, wide, figsize=(max(4.6 * wide, 8.0), 3.4 * high), squeeze=False)
    names = list(dict.fromkeys(line for row in panels for panel in row for line in panel.lines))
    colors = {line: LINE_COLORS[number % len(LINE_COLORS)] for number, line in enumerate(names)}
    for axes, row in zip(grid, panels, strict=True):
        for axis, panel in zip(axes, row, strict=True):
            _draw(axis, panel, colors)
    figure.suptitle(title, fontsize=12)
    _keep(figure, name)


def _draw(axis: Axes, panel: Panel, colors: Mapping[str, str]) -> None:
    for line, points in panel.lines.items():
        axis.plot(*zip(*points, strict=True), color=colors[line], marker="o", markersize=3.5, label=line)
    for line, points in panel.dashed.items():
        axis.plot(*zip(*points, strict=True), color=colors[line], marker="o", markersize=2.5, linestyle="--")
    if panel.log_x:
        ticks = sorted({x for points in panel.lines.values() for x, _ in points})
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axis.xaxis.set_minor_locator(NullLocator())
    if panel.log_y:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        axis.set_ylim(0, 1.08 * axis.get_ylim()[1])
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label, fontsize=9)
    axis.set_ylabel(panel.y_label, fontsize=9)
    axis.grid(color="#dde2e7", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if len(panel.lines) > 1:
        axis.legend(fontsize=8, frameon=False)


def _keep(figure: Figure, name: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)
