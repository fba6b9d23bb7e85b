"""Geometry of the admin's charts; the templates draw it as SVG, without a script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from idempotency.models import LedgerEntry

HEIGHT = 90  # of a chart, in units of its view box
BAR = 12  # width of an hour

# what is drawn together, and in which colour
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Executed": {"executed": "#0b7a4b", "refused": "#7aa893", "uncertain": "#c27c0e", "failed": "#b3261e"},
    "Replayed": {"replayed": "#2f6db5"},
    "Conflicts": {
        "in_progress": "#c27c0e",
        "reused": "#b3261e",
        "expired": "#6b7280",
        "lost_race": "#7c4dbd",
        "lost_lease": "#c2185b",
    },
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle: place and size in the view box, colour, and what it says."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Stacked bars by the hour."""

    title: str
    bars: list[Bar]
    legend: list[tuple[str, str, int]]  # what, colour, total
    width: int
    height: int
    most: int  # what the full height stands for


@dataclass(frozen=True, slots=True)
class Age:
    """An open entry and how long it has been so, against the oldest one."""

    entry: LedgerEntry
    seconds: float
    percent: float


def by_hour(hours: Mapping[datetime, Mapping[str, int]]) -> list[Chart]:
    """A chart for each of `GROUPS`."""
    return [_chart(title, colours, hours) for title, colours in GROUPS.items()]


def ages(entries: Sequence[LedgerEntry]) -> list[Age]:
    """Bars of the ages of `entries`, in their order."""
    now = timezone.now()
    seconds = [(now - entry.created_at).total_seconds() for entry in entries]
    most = max([*seconds, 1.0])
    return [Age(entry, age, 100 * age / most) for entry, age in zip(entries, seconds, strict=True)]


def _chart(title: str, colours: Mapping[str, str], hours: Mapping[datetime, Mapping[str, int]]) -> Chart:
    most = max([sum(counts.get(what, 0) for what in colours) for counts in hours.values()] + [1])
    bars = []
    for index, (hour, counts) in enumerate(hours.items()):
        top = float(HEIGHT)
        for what, colour in colours.items():
            if count := counts.get(what, 0):
                height = HEIGHT * count / most
                top -= height
                label = f"{hour:%d %b %H}:00 UTC · {count} {what}"
                bars.append(Bar(index * BAR, round(top, 2), BAR - 2, round(height, 2), colour, label))
    legend = [
        (what, colour, sum(counts.get(what, 0) for counts in hours.values())) for what, colour in colours.items()
    ]
    return Chart(title, bars, legend, width=len(hours) * BAR, height=HEIGHT, most=most)
