"""The dashboard's content: charts by the hour, open work by age."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.utils.timesince import timesince

from idempotency.admin.charts import Group, draw, lines, parts
from payments.admin.pages import page_of
from payments.display import money, refund_money
from payments.models import Attempt, PaymentEvent, Refund
from payments.operations import figures

# every verdict once; the colours are readable on white and on black
VERDICTS = Group(
    "Notifications",
    "What became of each genuine notification; copies are not counted.",
    {
        "applied": ("applied", "#0b8a54"),
        "duplicate": ("nothing new", "#3577c2"),
        "held": ("waits for its payment", "#8a5fd0"),
        "ignored": ("moves no money", "#7b8494"),
        "anomaly": ("anomaly", "#c27c0e"),
        "quarantined": ("in quarantine", "#d6337c"),
        "error": ("failed", "#d0342c"),
    },
)
CREDITED = Group("Payments credited", "Each payment once, in its hour.", {"credited": ("credited", "#0b8a54")})
_AGE_COLOURS = ("#7aa893", "#3577c2", "#c27c0e", "#d0342c")
AGE_LABELS = [(words, colour) for (words, _), colour in zip(figures.AGES, _AGE_COLOURS, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of open anomaly, as a bar in parts by age: each with place, width (percent), colour and words."""

    kind: str
    words: str
    count: int
    age: str
    parts: list[tuple[float, float, str, str]]


def context() -> dict[str, Any]:
    """Build everything that the page draws."""
    counts, sums = figures.credited_by_hour()
    drawn = [draw(VERDICTS, figures.notifications_by_hour()), draw(CREDITED, counts)]
    for currency, hours in sums.items():
        group = Group(f"Sum of them, {currency}", "", {"credited": ("credited", "#0b8a54")})
        drawn.append(draw(group, hours, say=partial(money, currency=currency)))
    refunds, attempts, events = figures.open_refunds(), figures.uncertain_attempts(), figures.waiting_events()
    return {
        "charts": drawn,
        "kinds": kinds(figures.open_anomalies()),
        "age_legend": AGE_LABELS,
        "held": [(money(-row.balance_minor, row.currency), row.balance_minor != 0) for row in figures.held()],
        "waiting": [
            ("Open refunds", "Every refund is over.", refunds.count, lines(refunds.oldest, _of_refund)),
            ("Uncertain attempts", "Every outcome is known.", attempts.count, lines(attempts.oldest, _of_attempt)),
            ("Events waiting", "Every event is handled.", events.count, lines(events.oldest, _of_event)),
        ],
    }


def kinds(found: Sequence[figures.OpenKind]) -> list[Kind]:
    """Make a bar of each kind, against the most frequent one."""
    most = max([sum(one.counts) for one in found] + [1])
    return [
        Kind(
            kind=one.kind,
            words=one.words,
            count=sum(one.counts),
            age=timesince(one.oldest, depth=1),
            parts=list(parts(one.counts, most, AGE_LABELS)),
        )
        for one in found
    ]


def _of_refund(refund: Refund) -> tuple[str, str, str]:
    return refund_money(refund), refund.get_status_display(), page_of(refund)


def _of_attempt(attempt: Attempt) -> tuple[str, str, str]:
    way = f"{attempt.channel} {attempt.method}"
    return money(attempt.amount_minor, attempt.currency), way, page_of(attempt)


def _of_event(event: PaymentEvent) -> tuple[str, str, str]:
    failed = f", failed {event.attempts} times" if event.attempts else ""
    return event.status.replace("_", " "), f"event {event.number}{failed}", page_of(event)
