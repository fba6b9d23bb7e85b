"""Geometry of the admin's charts; the templates draw it as SVG, without a script."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from idempotency.admin.timeline import condition
from idempotency.models import LedgerEntry

HEIGHT = 90  # of a chart, in units of its view box
BAR = 12  # width of an hour
LEAST = 1.5  # height of what happened at all
MARKS = 4  # times written under a chart


@dataclass(frozen=True, slots=True)
class Group:
    """What is drawn together: of each count its words and its colour, legible on white and on black."""

    title: str
    note: str
    parts: Mapping[str, tuple[str, str]]


GROUPS = (
    Group(
        "Executed",
        "The handler ran, and its answer is kept for retries.",
        {"executed": ("done", "#0b8a54"), "refused": ("refused (4xx)", "#7aa893")},
    ),
    Group(
        "Without a kept answer",
        "The handler ran and gave no answer to keep: a retry runs it again.",
        {
            "uncertain": ("outcome unknown", "#c27c0e"),
            "failed": ("handler failed", "#d0342c"),
            "not_stored": ("answer not to keep (400, 429, 5xx)", "#7b8494"),
        },
    ),
    Group("Replayed", "Retries that got the kept answer; nothing ran.", {"replayed": ("replayed", "#3577c2")}),
    Group(
        "Conflicts",
        "Refused because of the key, or undone because a twin was faster.",
        {
            "in_progress": ("first one still running (409)", "#c27c0e"),
            "reused": ("key of another request (422)", "#d0342c"),
            "expired": ("answer no longer kept (410)", "#7b8494"),
            "lost_race": ("ran beside a twin, undone", "#8a5fd0"),
            "lost_lease": ("lost its lease to a later run", "#d6337c"),
        },
    ),
)


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
    note: str
    bars: list[Bar]
    legend: list[tuple[str, str, str]]  # words, colour, total
    marks: list[str]  # the hours at which the equal parts of the width begin
    width: int
    height: int
    most: str  # what the full height stands for


@dataclass(frozen=True, slots=True)
class Age:
    """An open entry and how long it has been so, against the oldest one."""

    entry: LedgerEntry
    condition: str
    seconds: float
    percent: float


def by_hour(hours: Mapping[datetime, Mapping[str, int]]) -> list[Chart]:
    """A chart for each of `GROUPS`."""
    return [draw(group, hours) for group in GROUPS]


def ages(entries: Sequence[LedgerEntry]) -> list[Age]:
    """Bars of the ages of `entries`, in their order."""
    now = timezone.now()
    seconds = [(now - entry.created_at).total_seconds() for entry in entries]
    most = max([*seconds, 1.0])
    return [
        Age(entry, condition(entry), age, 100 * age / most) for entry, age in zip(entries, seconds, strict=True)
    ]


def draw(
    group: Group,
    hours: Mapping[datetime, Mapping[str, int]],
    *,
    say: Callable[[int], str] = "{:,}".format,
) -> Chart:
    """Stacked bars by the hour; `say` puts an amount into words."""
    most = max([sum(counts.get(what, 0) for what in group.parts) for counts in hours.values()] + [1])
    bars = []
    for index, (hour, counts) in enumerate(hours.items()):
        top = float(HEIGHT)
        for what, (words, colour) in group.parts.items():
            if count := counts.get(what, 0):
                height = max(LEAST, HEIGHT * count / most)
                top = max(0.0, top - height)
                label = f"{hour:%d %b %H}:00 UTC · {say(count)} {words}"
                bars.append(Bar(index * BAR, round(top, 2), BAR - 2, round(height, 2), colour, label))
    legend = [
        (words, colour, say(sum(counts.get(what, 0) for counts in hours.values())))
        for what, (words, colour) in group.parts.items()
    ]
    marks = [f"{hour:%d %b %H}:00" for hour in list(hours)[:: max(1, len(hours) // MARKS)]]
    return Chart(group.title, group.note, bars, legend, marks, len(hours) * BAR, HEIGHT, say(most))
