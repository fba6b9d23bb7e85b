"""Capture trades that their shoppers have approved: at some channels no money moves before."""

from django.db.models.functions import Now

from payments.attempts import calling
from payments.errors import OutcomeUnknown, ProviderError
from payments.models import Attempt
from payments.providers.base import Provider, Trade, TradeStatus
from payments.settlement import backoff
from payments.states import LIVE_ATTEMPTS


def capture(channel: Provider, attempt: Attempt) -> Trade:
    """Take the money of an approved trade, if its attempt is live and its order still waits for money.

    That it goes out is committed first: until a word about it, or `backoff.IN_DOUBT`, the attempt does not end as
    closed (`must_not_be_captured`). A closing looks for that last, and `Provider.capture` for what is closed, so
    of both at once one gives way.

    Transaction: NONE may be open. May run any number of times, also at once.
    """
    live = Attempt.objects.filter(pk=attempt.pk, status__in=LIVE_ATTEMPTS)
    fresh = live.annotate(now=Now()).first()
    left_open = Trade(status=TradeStatus.APPROVED)
    if fresh is None or not calling.may_be_paid(attempt) or not live.update(capture_submitted_at=fresh.now):
        return left_open
    ours = live.filter(capture_submitted_at=fresh.now)
    try:
        trade = channel.capture(out_trade_no=attempt.out_trade_no, reference=attempt.reference)
    except OutcomeUnknown:
        raise
    except ProviderError:
        ours.update(capture_submitted_at=fresh.capture_submitted_at)
        raise
    ours.update(capture_submitted_at=fresh.capture_submitted_at)
    return trade


def must_not_be_captured(attempt: Attempt) -> None:
    """Raise `OutcomeUnknown` while a capture of an attempt, so not to be closed, may go through."""
    if Attempt.objects.filter(pk=attempt.pk, capture_submitted_at__gt=Now() - backoff.IN_DOUBT).exists():
        raise OutcomeUnknown("a capture of it may still be carried out")
