"""The dashboard's content: charts by the hour, and the money that counts for no order."""

from functools import partial
from typing import Any

from idempotency.admin.charts import Group, draw
from payments.display import money
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


def context() -> dict[str, Any]:
    """Build everything that the page draws."""
    counts, sums = figures.credited_by_hour()
    drawn = [draw(VERDICTS, figures.notifications_by_hour()), draw(CREDITED, counts)]
    for currency, hours in sums.items():
        group = Group(f"Sum of them, {currency}", "", {"credited": ("credited", "#0b8a54")})
        drawn.append(draw(group, hours, say=partial(money, currency=currency)))
    return {
        "charts": drawn,
        "held": [(money(-row.balance_minor, row.currency), row.balance_minor != 0) for row in figures.held()],
    }
