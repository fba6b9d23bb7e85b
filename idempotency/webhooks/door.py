"""Door of senders' requests, whatever takes them in."""

from collections.abc import Callable
from typing import TypeVar

from django.contrib.auth.decorators import login_not_required
from django.db.transaction import non_atomic_requests
from django.http import HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from idempotency.protocol.misuse import mark_not_keyed

View = TypeVar("View", bound=Callable[..., HttpResponse])


def door(*, using: str) -> Callable[[View], View]:
    """Make a view that senders reach by POST: they have no login, no CSRF token and no key of ours.

    Args:
        using: alias of the database that the view commits in by itself.
    """

    def opened(view: View) -> View:
        mark_not_keyed(view)
        return csrf_exempt(non_atomic_requests(using=using)(login_not_required(require_POST(view))))

    return opened
