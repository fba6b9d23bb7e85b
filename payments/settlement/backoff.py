"""Back-off of the timer's questions, and how long a command stays in doubt."""

from datetime import timedelta

from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

# how long a command without an answer may still be carried out; longer than a provider takes for one
IN_DOUBT = timedelta(minutes=10)
# how long a capture takes that has several calls
UNDER_WAY = timedelta(seconds=20)

FIRST_SECONDS = 10
LONGEST_SECONDS = 3600


def delay_seconds(query_count: int) -> int:
    """Seconds to wait after `query_count` questions: 10, 20, 40, … at most an hour."""
    return int(min(FIRST_SECONDS * 2 ** min(query_count, 16), LONGEST_SECONDS))


def after(*, query_count: int) -> CombinedExpression:
    """The time of the next question, as an expression for the database."""
    return Now() + timedelta(seconds=delay_seconds(query_count))
