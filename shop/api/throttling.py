"""Limits of API calls a minute, for a caller and for all together, over all processes.

Django REST framework asks after authentication and permissions and before the handler. So a refused call burns no
Idempotency-Key. Replays count like other calls.
"""

from typing import Any

from django.conf import settings
from prometheus_client import Counter
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from idempotency.locks import RateExceeded, RateLimiter
from idempotency.request.principal import principal_of
from payments.channels.sharing import shared

INTERVAL_SECONDS = 60.0

THROTTLED = Counter("payonce_throttled", "API calls, forms and logins that were refused with 429.")


class CallerThrottle(BaseThrottle):
    """Throttle by `API_CALLS_PER_MINUTE` and `…_OVERALL`: 429 with `Retry-After`.

    No span of a minute has more calls; a refused one does not count. One command to Redis a call. Guests pass:
    only the API's documentation is open to them, and they shall not use up the callers' share.
    """

    _wait_seconds: float | None = None

    def allow_request(self, request: Request, view: Any) -> bool:
        if not request.user.is_authenticated:
            return True
        caller = principal_of(request)

        def ask(redis: object) -> None:
            RateLimiter(
                "api",
                permits=settings.API_CALLS_PER_MINUTE_OVERALL,
                permits_per_client=settings.API_CALLS_PER_MINUTE,
                interval_seconds=INTERVAL_SECONDS,
                client=redis,
            ).acquire(caller=caller)

        try:
            # without Redis everyone passes, which is safe: the limit spares our servers and decides nothing
            shared("api rate", ask, otherwise=None)
        except RateExceeded as full:
            self._wait_seconds = full.retry_after_seconds
            THROTTLED.inc()
            return False
        return True

    def wait(self) -> float | None:
        """Return the seconds until this caller's next call could pass, for `Retry-After`."""
        return self._wait_seconds
