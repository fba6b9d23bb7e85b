"""HTTP towards a provider: one pooled client, explicit time-outs, and what a failure lets us know.

A connection that never stood means that nothing happened (`ProviderUnavailable`); anything later means that we
do not know (`OutcomeUnknown`). No retries, no redirects, no proxies from the environment.
"""

import ssl
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import httpx

from payments.errors import OutcomeUnknown, ProviderUnavailable
from payments.providers.documents import UNREADABLE

# made anew around each call; entering it may wait, and raise ProviderUnavailable instead of letting the call out
Limits = Callable[[], AbstractContextManager[None]]

NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def client(*, timeout_seconds: float, max_connections: int = 20) -> httpx.Client:
    """A thread-safe client for one provider.

    Its connections end with the last reference to it: a provider that was built anew for changed keys is dropped
    by `payments.channels`, while calls of other threads may still run on it.
    """
    pool = httpx.HTTPTransport(
        verify=_authorities(),
        limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections),
        trust_env=False,
    )
    made = httpx.Client(
        transport=pool, timeout=httpx.Timeout(timeout_seconds), follow_redirects=False, trust_env=False
    )
    weakref.finalize(made, pool.close)
    return made


@cache
def _authorities() -> ssl.SSLContext:
    """Whom we trust to name a provider; read once, because each reading takes longer than many a call."""
    return httpx.create_ssl_context(trust_env=False)


def send(session: httpx.Client, request: httpx.Request, *, limits: Limits = nullcontext) -> httpx.Response:
    """Send and read the whole answer, within `limits`.

    Raises:
        ProviderUnavailable: it did not leave this machine.
        OutcomeUnknown: it left, and no whole answer below 500 came back.
    """
    try:
        with limits():
            response = session.send(request)
    except NEVER_SENT as error:
        raise ProviderUnavailable(f"{request.url.host} cannot be reached: {type(error).__name__}") from error
    except httpx.HTTPError as error:
        raise OutcomeUnknown(f"no answer from {request.url.host}: {type(error).__name__}") from error
    if response.status_code >= 500:
        raise OutcomeUnknown(f"{request.url.host} answered {response.status_code}")
    return response


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Around taking a genuine answer apart: one that is not of the documented shape tells us nothing.

    Raises:
        OutcomeUnknown: instead of what is `UNREADABLE` inside.
    """
    try:
        yield
    except UNREADABLE as error:
        raise OutcomeUnknown(f"the answer's {what} cannot be read: {error!r}") from error
