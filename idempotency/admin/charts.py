"""Geometry of the ledger's charts; templates draw it as SVG, without a script."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.text import Truncator
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from idempotency.admin.labels import condition
from idempotency.models import LedgerEntry

HEIGHT = 90  # of a chart, in units of its view box
BAR = 12  # width of an hour
LEAST = 1.5  # height of what happened at all
MARKS = 4  # times written under a chart
KEY_SHOWN = 40  # characters, in the table of open entries


# words and colour of each count, readable on white and on black
PARTS = {
    "executed": (gettext_lazy("done"), "#0b8a54"),
    "refused": (gettext_lazy("refused (4xx)"), "#7aa893"),
    "unfinished": (gettext_lazy("without a final answer"), "#c27c0e"),
}


def draw(hours: Mapping[datetime, Mapping[str, int]]) -> dict[str, Any]:
    """Stack the counts of each hour as bars, in units of the view box."""
    most = max([sum(counts.values()) for counts in hours.values()] + [1])
    bars = []
    for index, (hour, counts) in enumerate(hours.items()):
        top = float(HEIGHT)
        for what, (words, colour) in PARTS.items():
            if count := counts.get(what, 0):
                height = max(LEAST, HEIGHT * count / most)
                top = max(0.0, top - height)
                about = {"hour": _hour(hour), "count": f"{count:,}", "what": words}
                label = _("%(hour)s UTC · %(count)s %(what)s") % about
                place = {"x": index * BAR, "y": round(top, 2), "height": round(height, 2)}
                bars.append({**place, "colour": colour, "label": label})
    return {
        "bars": bars,
        "bar_width": BAR - 2,
        "legend": [
            (words, colour, f"{sum(counts.get(what, 0) for counts in hours.values()):,}")
            for what, (words, colour) in PARTS.items()
        ],
        "marks": [_hour(hour) for hour in list(hours)[:: max(1, len(hours) // MARKS)]],
        "width": len(hours) * BAR,
        "height": HEIGHT,
        "most": f"{most:,}",
    }


def _hour(hour: datetime) -> str:
    return date_format(hour, _("j M H:i"))


def ages(entries: list[LedgerEntry]) -> list[dict[str, Any]]:
    """Describe open entries: the age of each, in words and as a share of the oldest's."""
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
