"""What the dashboard draws: charts by the hour, and bars of age; as SVG by the template, without a script."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import Model
from django.utils import timezone
from django.utils.timesince import timesince

from idempotency.admin.charts import Group, draw
from payments.admin.pages import page_of
from payments.legible import money, refund_money
from payments.models import Attempt, PaymentEvent, Refund
from payments.operations import dashboard as figures

# every verdict once; the colours are legible on white and on black
VERDICTS = Group(
    "Notifications",
    "What became of each genuine notification; copies are not counted.",
    {
        "applied": ("applied", "#0b8a54"),
        "duplicate": ("told nothing new", "#3577c2"),
        "held": ("waits for its payment", "#8a5fd0"),
        "ignored": ("moves no money", "#7b8494"),
        "anomaly": ("anomaly", "#c27c0e"),
        "quarantined": ("in quarantine", "#d6337c"),
        "error": ("failed", "#d0342c"),
    },
)
CREDITED = Group("Payments credited", "Each payment once, in its hour.", {"credited": ("credited", "#0b8a54")})
AGE_COLOURS = ("#7aa893", "#3577c2", "#c27c0e", "#d0342c")  # as `figures.AGES`


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of a table: what, with its address, and how long it has been so, against the oldest of them."""

    words: str
    address: str
    note: str
    age: str
    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of anomaly: parts of a bar, each with place, width (percent), colour and words."""

    kind: str
    words: str
    count: int
    age: str
    parts: list[tuple[float, float, str, str]]


def dashboard() -> dict[str, Any]:
    """Everything that the page draws."""
    counts, sums = figures.credited_by_hour()
    drawn = [draw(VERDICTS, figures.notifications_by_hour()), draw(CREDITED, counts)]
    for currency, hours in sums.items():
        group = Group(f"Sum of them, {currency}", "", {"credited": ("credited", "#0b8a54")})
        drawn.append(draw(group, hours, say=partial(money, currency=currency)))
    refunds, attempts, events = figures.open_refunds(), figures.uncertain_attempts(), figures.waiting_events()
    return {
        "charts": drawn,
        "kinds": kinds(figures.open_anomalies()),
        "age_legend": [(words, colour) for (words, _), colour in zip(figures.AGES, AGE_COLOURS, strict=True)],
        "held": [(money(-row.balance_minor, row.currency), row.balance_minor != 0) for row in figures.held()],
        "waiting": [
            ("Open refunds", "Every refund is over.", refunds.count, lines(refunds.oldest, _of_refund)),
            ("Uncertain attempts", "Every outcome is known.", attempts.count, lines(attempts.oldest, _of_attempt)),
            ("Events waiting", "Everything has been acted on.", events.count, lines(events.oldest, _of_event)),
        ],
    }


def kinds(found: Sequence[figures.OpenKind]) -> list[Kind]:
    """A bar for each kind of open anomaly, against the most frequent one, in parts by age."""
    most = max([sum(one.counts) for one in found] + [1])
    drawn = []
    for one in found:
        start, parts = 0.0, []
        for count, (words, _), colour in zip(one.counts, figures.AGES, AGE_COLOURS, strict=True):
            if count:
                width = 100 * count / most
                parts.append((start, width, colour, f"{count:,} {words}"))
                start += width
        age = timesince(one.oldest, depth=1)
        drawn.append(Kind(kind=one.kind, words=one.words, count=sum(one.counts), age=age, parts=parts))
    return drawn


def lines(rows: Sequence[Any], tell: Callable[[Any], tuple[str, str, Model]]) -> list[Line]:
    """A line for each row, in their order, which is that of age."""
    now = timezone.now()
    oldest = max([(now - row.created_at).total_seconds() for row in rows] + [1.0])
    told = []
    for row in rows:
        words, note, page = tell(row)
        percent = 100 * (now - row.created_at).total_seconds() / oldest
        age = timesince(row.created_at, now, depth=1)
        told.append(Line(words=words, note=note, address=page_of(page), age=age, percent=percent))
    return told


def _of_refund(refund: Refund) -> tuple[str, str, Model]:
    return refund_money(refund), refund.get_status_display(), refund


def _of_attempt(attempt: Attempt) -> tuple[str, str, Model]:
    return money(attempt.amount_minor, attempt.currency), f"{attempt.channel} {attempt.method}", attempt


def _of_event(event: PaymentEvent) -> tuple[str, str, Model]:
    failed = f", failed {event.attempts} times" if event.attempts else ""
    return event.status.replace("_", " "), f"event {event.number}{failed}", event
