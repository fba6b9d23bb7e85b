"""Geometry of the ledger's charts; templates draw it as SVG, without a script."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.text import Truncator
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from idempotency.admin.labels import condition
from idempotency.models import LedgerEntry

HEIGHT = 90  # of a chart, in units of its view box
BAR = 12  # width of an hour
LEAST = 1.5  # height of what happened at all
MARKS = 4  # times written under a chart
KEY_SHOWN = 40  # characters, in the table of open entries


@dataclass(frozen=True, slots=True)
class Group:
    """Series of one chart: words and colour of each count, readable on white and on black."""

    title: Any
    note: Any
    parts: Mapping[str, tuple[Any, str]]


@dataclass(frozen=True, slots=True)
class Bar:
    """Rectangle: place and size in the view box, colour, and label."""

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


def draw(group: Group, hours: Mapping[datetime, Mapping[str, int]]) -> Chart:
    most = max([sum(counts.get(what, 0) for what in group.parts) for counts in hours.values()] + [1])
    bars = []
    for index, (hour, counts) in enumerate(hours.items()):
        top = float(HEIGHT)
        for what, (words, colour) in group.parts.items():
            if count := counts.get(what, 0):
                height = max(LEAST, HEIGHT * count / most)
                top = max(0.0, top - height)
                about = {"hour": _hour(hour), "count": f"{count:,}", "what": words}
                label = _("%(hour)s UTC · %(count)s %(what)s") % about
                bars.append(Bar(index * BAR, round(top, 2), BAR - 2, round(height, 2), colour, label))
    legend = [
        (words, colour, f"{sum(counts.get(what, 0) for counts in hours.values()):,}")
        for what, (words, colour) in group.parts.items()
    ]
    marks = [_hour(hour) for hour in list(hours)[:: max(1, len(hours) // MARKS)]]
    return Chart(str(group.title), str(group.note), bars, legend, marks, len(hours) * BAR, HEIGHT, f"{most:,}")


def _hour(hour: datetime) -> str:
    return date_format(hour, _("j M H:i"))


def ages(entries: list[LedgerEntry]) -> list[dict[str, Any]]:
    """Describe open entries, the oldest first, with the age of each in words and against the oldest's."""
    now = timezone.now()
    oldest_seconds = max([(now - entry.created_at).total_seconds() for entry in entries] + [1.0])
    return [
        {
            "words": Truncator(entry.key).chars(KEY_SHOWN),
            "address": reverse("admin:idempotency_ledgerentry_change", args=[entry.pk]),
            "note": condition(entry),
            "age": timesince(entry.created_at, now, depth=1),
            "percent": 100 * (now - entry.created_at).total_seconds() / oldest_seconds,
        }
        for entry in entries
    ]
