"""Geometry of the admin's charts, for all apps; templates draw it as SVG, without a script."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

HEIGHT = 90  # of a chart, in units of its view box
BAR = 12  # width of an hour
LEAST = 1.5  # height of what happened at all
MARKS = 4  # times written under a chart


@dataclass(frozen=True, slots=True)
class Group:
    """Counts of one chart: of each its words and its colour, readable on white and on black."""

    title: Any
    note: Any
    parts: Mapping[str, tuple[Any, str]]


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle: place and size in the view box, colour, and label."""

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
    note: str
    bars: list[Bar]
    legend: list[tuple[str, str, str]]  # words, colour, total
    marks: list[str]  # the hours at which the equal parts of the width begin
    width: int
    height: int
    most: str  # what the full height stands for


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of a table of open work: its words, address and state, its age, and that against the oldest's."""

    words: str
    address: str
    note: str
    age: str
    percent: float


def draw(
    group: Group, hours: Mapping[datetime, Mapping[str, int]], *, say: Callable[[int], str] = "{:,}".format
) -> Chart:
    """Stack bars by the hour; `say` puts an amount into words."""
    most = max([sum(counts.get(what, 0) for what in group.parts) for counts in hours.values()] + [1])
    bars = []
    for index, (hour, counts) in enumerate(hours.items()):
        top = float(HEIGHT)
        for what, (words, colour) in group.parts.items():
            if count := counts.get(what, 0):
                height = max(LEAST, HEIGHT * count / most)
                top = max(0.0, top - height)
                about = {"hour": _hour(hour), "count": say(count), "what": words}
                label = _("%(hour)s UTC · %(count)s %(what)s") % about
                bars.append(Bar(index * BAR, round(top, 2), BAR - 2, round(height, 2), colour, label))
    legend = [
        (words, colour, say(sum(counts.get(what, 0) for counts in hours.values())))
        for what, (words, colour) in group.parts.items()
    ]
    marks = [_hour(hour) for hour in list(hours)[:: max(1, len(hours) // MARKS)]]
    return Chart(str(group.title), str(group.note), bars, legend, marks, len(hours) * BAR, HEIGHT, say(most))


def _hour(hour: datetime) -> str:
    return date_format(hour, _("j M H:i"))


def lines(rows: Sequence[Any], describe: Callable[[Any], tuple[str, str, str]]) -> list[Line]:
    """Make a line of each row, in their order, which is that of age.

    Args:
        describe: row -> its words, its state, the address of its page.
    """
    now = timezone.now()
    seconds = [(now - row.created_at).total_seconds() for row in rows]
    oldest = max([*seconds, 1.0])
    made = []
    for row, age in zip(rows, seconds, strict=True):
        words, note, address = describe(row)
        shown = timesince(row.created_at, now, depth=1)
        made.append(Line(words=words, note=note, address=address, age=shown, percent=100 * age / oldest))
    return made
