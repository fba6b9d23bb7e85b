"""Questions to a provider because a shopper looks, comes back or retries: few, and last.

Anyone can repeat a call without end. So one question an attempt goes out in `AGAIN`, over all processes, and
shoppers' questions together have a share of the limits (`payments.channels.limits`). If none goes out, the shopper
sees what is stored.
"""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from payments.channels import limits
from payments.errors import NoRoom
from payments.models import Attempt
from payments.settlement.backoff import FIRST_SECONDS

AGAIN = timedelta(seconds=FIRST_SECONDS)  # no oftener than the timer asks at first
WAITED_FOR = timedelta(seconds=2)  # after a question went out; most answers need a tenth of it

T = TypeVar("T")


def for_shopper(attempt_id: UUID, ask: Callable[[], T]) -> T | None:
    """Ask, if there is room and no question went out within `AGAIN`; else return None.

    Transaction: NONE may be open.
    """
    seldom = Q(asked_at__isnull=True) | Q(asked_at__lte=Now() - AGAIN)
    if not Attempt.objects.filter(seldom, pk=attempt_id).update(asked_at=Now()):
        return None
    try:
        with limits.for_shopper():
            return ask()
    except NoRoom:
        return None


def wait_for_others(attempt_id: UUID, *, among: Iterable[str]) -> None:
    """Wait while the status is one of `among`, for the result of a recent question."""
    unchanged = Attempt.objects.filter(pk=attempt_id, status__in=among)
    while unchanged.filter(asked_at__gt=Now() - WAITED_FOR).exists():
        time.sleep(0.05)
