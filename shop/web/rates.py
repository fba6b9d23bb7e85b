"""Rate limits of the pages' forms and of wrong passwords, over all processes in Redis.

While Redis is away each process counts by itself, so the limits multiply. The API has its own
(`shop.api.throttling`).
"""

import hashlib
import math
import threading
import time
import unicodedata
from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext_noop as _
from rest_framework.permissions import SAFE_METHODS

from idempotency.errors import Problem
from idempotency.locks import RateExceeded, RateLimiter
from payments.channels.sharing import give_back, shared
from shop.api.throttling import THROTTLED
from shop.platform.clientip import client_network
from shop.platform.fallbacks import is_of_api
from shop.platform.middleware import Middleware
from shop.web import problems
from shop.web.decorators import View

FORMS_SECONDS = 60.0
GUESSES_SECONDS = 300.0
COUNTED_HERE_MAX = 10_000  # callers that one process counts without Redis; the least recent is dropped first


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of permits in any span of the interval, for one caller."""

    caller: str
    permits: int
    interval_seconds: float

    def take(self) -> float:
        """Take a permit; return 0, or the seconds until there is one."""

        def ask(redis: Any) -> bool:
            self._limiter(redis).acquire()
            return True

        try:
            asked = shared("page rate", ask, otherwise=False)
        except RateExceeded as full:
            return full.retry_after_seconds
        return 0.0 if asked else _here.take(self)

    def give_back(self) -> None:
        if not _here.give_back(self):
            give_back("page rate", lambda redis: self._limiter(redis).release())

    def _limiter(self, redis: Any) -> RateLimiter:
        return RateLimiter(self.caller, permits=self.permits, interval_seconds=self.interval_seconds, client=redis)


class OneProcess:
    """Permits given by this process while Redis was away; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, rate: Rate) -> float:
        now = time.monotonic()
        with self._lock:
            given = self._given.setdefault(rate.caller, deque())
            self._given.move_to_end(rate.caller)
            if len(self._given) > COUNTED_HERE_MAX:
                self._given.popitem(last=False)
            while given and given[0] <= now - rate.interval_seconds:
                given.popleft()
            if len(given) >= rate.permits:
                return given[len(given) - rate.permits] + rate.interval_seconds - now
            given.append(now)
            return 0.0

    def give_back(self, rate: Rate) -> bool:
        with self._lock:
            given = self._given.get(rate.caller)
            return bool(given and given.pop())


_here = OneProcess()


class FormRateMiddleware(Middleware):
    """Answer 429 above `FORM_POSTS_PER_MINUTE` of a member, or of all guests of one address.

    Stands after authentication and before every view, so a refusal burns no key and writes nothing.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method in SAFE_METHODS or is_of_api(request.path_info):
            return self.get_response(request)
        caller = f"user {request.user.pk}" if request.user.is_authenticated else client_network(request.META)
        rate = Rate(f"forms of {caller}", settings.FORM_POSTS_PER_MINUTE, FORMS_SECONDS)
        seconds = rate.take()
        return refused(request, seconds) if seconds else self.get_response(request)


def limits_guesses(login: View) -> View:
    """Answer 429, before a hash, after too many wrong passwords for a name or from an address.

    Takes a permit for each try and gives it back after a login, so concurrent tries count as well.
    """

    @wraps(login)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST":
            return login(request, *args, **kwargs)
        taken = []
        for rate in _guesses(request):
            if seconds := rate.take():
                return refused(request, seconds)
            taken.append(rate)
        response = login(request, *args, **kwargs)
        if response.status_code == 302:  # a wrong password draws the form again
            for rate in taken:
                rate.give_back()
        return response

    return wrapper


def _guesses(request: HttpRequest) -> tuple[Rate, Rate]:
    """Return the rates, the address first: used up, it takes no permit of the guessed name."""
    # folds at least the names that Django takes for equal
    name = unicodedata.normalize("NFKC", request.POST.get("username", "")).strip().casefold()
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    address = client_network(request.META)
    return (
        Rate(f"guesses of {address}", settings.LOGIN_FAILURES_PER_ADDRESS, GUESSES_SECONDS),
        Rate(f"guesses at {digest}", settings.LOGIN_FAILURES_PER_NAME, GUESSES_SECONDS),
    )


def refused(request: HttpRequest, seconds: float) -> HttpResponse:
    THROTTLED.inc()
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))}
    detail = _("There were too many requests of this kind. Wait, then try once more.")
    return problems.render_problem(request, Problem(429, "throttled", detail, headers=headers))
