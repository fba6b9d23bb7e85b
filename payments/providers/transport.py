"""HTTP towards a provider: bounded in time and size, failures sorted by what they prove.

No connection: nothing happened (`ProviderUnavailable`). Anything later: unknown (`OutcomeUnknown`). No retries,
no redirects, no proxies from the environment.
"""

import json
import ssl
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

import httpx

from payments.errors import OutcomeUnknown, ProviderUnavailable
from payments.providers.deadlines import BoundedTransport, within
from payments.providers.documents import UNREADABLE

# one context for each call; entering it may wait, or raise ProviderUnavailable so that nothing is sent
Limits = Callable[[], AbstractContextManager[None]]

ANSWER_BYTES_MAX = 8 * 2**20  # the largest that we ask for are pages of a hundred objects
DOWNLOAD_SECONDS_MAX = 120.0

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer, read as a whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def document(self) -> dict[str, Any]:
        """Decode a JSON object, {} for no content. Raises OutcomeUnknown for anything else."""
        with reading("JSON"):
            found = json.loads(self.content) if self.content else {}
            if not isinstance(found, dict):
                raise ValueError("not an object")
            return found


def client(*, timeout_seconds: float) -> httpx.Client:
    """Make a thread-safe client for one provider.

    Its connections end with the last reference to it: `payments.channels.configured` drops a provider that was
    built again, while calls of other threads may still run on it.

    Args:
        timeout_seconds: for one call in all its parts, from the wait for a connection to the answer's last byte;
            and for each wait of a download.
    """
    pool = BoundedTransport(authorities=_authorities())
    made = httpx.Client(transport=pool, timeout=timeout_seconds, follow_redirects=False, trust_env=False)
    weakref.finalize(made, pool.close)
    return made


def send(
    session: httpx.Client,
    request: httpx.Request,
    *,
    limits: Limits = nullcontext,
    seconds_max: float | None = None,
    bytes_max: int = ANSWER_BYTES_MAX,
) -> Answer:
    """Send and read the whole answer, within `limits`.

    Args:
        seconds_max: for all of it; the session's time-out where None.
        bytes_max: of the answer's body on the wire; compressed answers are refused, never unpacked.

    Raises:
        ProviderUnavailable: it did not leave this machine.
        OutcomeUnknown: it left, and no whole, uncompressed answer below 500 and within `bytes_max` came in time.
    """
    host, seconds = request.url.host, seconds_max or session.timeout.read
    request.headers["Accept-Encoding"] = "identity"
    with _failures(host), limits(), within(seconds), closing(session.send(request, stream=True)) as response:
        if (encoding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
            raise OutcomeUnknown(f"{host} answered in the encoding {encoding!r:.80}, which was not asked for")
        content = bytearray()
        for part in response.iter_raw():
            content += part
            if len(content) > bytes_max:
                raise OutcomeUnknown(f"the answer of {host} is larger than {bytes_max} bytes")
    if response.status_code >= 500:
        raise OutcomeUnknown(f"{host} answered {response.status_code}")
    return Answer(status=response.status_code, headers=response.headers, content=bytes(content))


def status_of(session: httpx.Client, request: httpx.Request, *, bytes_max: int) -> int:
    """Send, and return the status, which counts whatever becomes of the body.

    Args:
        bytes_max: of the body that is drained, so that the connection may be used again.

    Raises:
        ProviderUnavailable: it did not leave this machine.
        OutcomeUnknown: it left, and no status came in time.
    """
    failures, left = _failures(request.url.host), bytes_max
    with failures, within(session.timeout.read), closing(session.send(request, stream=True)) as response:
        with suppress(httpx.HTTPError):
            for part in response.iter_raw():
                if (left := left - len(part)) < 0:
                    break
        return response.status_code


def ask(session: httpx.Client, limits: Limits, method: str, url: str, **request: Any) -> Answer:
    """Send one request, with the arguments of `httpx.Client.build_request`; raises as `send`."""
    return send(session, session.build_request(method, url, **request), limits=limits)


def download(
    session: httpx.Client,
    url: str,
    *,
    bytes_max: int,
    headers: Mapping[str, str] | None = None,
    limits: Limits = nullcontext,
) -> bytes:
    """Fetch a file from an address that a genuine answer named, within `DOWNLOAD_SECONDS_MAX`.

    Raises as `send`; OutcomeUnknown also for a malformed address, and any status but 200.
    """
    try:
        request = session.build_request("GET", url, headers=headers)
    except (httpx.InvalidURL, ValueError):
        raise OutcomeUnknown("the file's address is none") from None
    answer = send(session, request, limits=limits, seconds_max=DOWNLOAD_SECONDS_MAX, bytes_max=bytes_max)
    if answer.status != httpx.codes.OK:
        raise OutcomeUnknown(f"{request.url.host} answered {answer.status} and not with a file")
    return answer.content


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Report a genuine answer of an unknown shape as `OutcomeUnknown`.

    Raises:
        OutcomeUnknown: instead of what is `UNREADABLE` inside, with its type and place only: the error's text may
            hold the answer, a whole bill with everybody who paid.
    """
    try:
        yield
    except UNREADABLE as error:
        place = traceback.extract_tb(error.__traceback__, limit=-1)[0]
        where = f"{type(error).__name__} at {PurePath(place.filename).name}:{place.lineno}"
        raise OutcomeUnknown(f"the answer's {what} cannot be read: {where}") from None


@cache
def _authorities() -> ssl.SSLContext:
    """Load the trusted authorities once; each loading takes longer than many a call."""
    return httpx.create_ssl_context(trust_env=False)


@contextmanager
def _failures(host: str) -> Iterator[None]:
    """Raise `ProviderUnavailable` or `OutcomeUnknown`, by what httpx's error proves."""
    try:
        yield
    except _NEVER_SENT as error:
        raise ProviderUnavailable(f"{host} cannot be reached: {type(error).__name__}") from error
    except httpx.HTTPError as error:
        # the text of one about a broken answer holds what was read of it
        raise OutcomeUnknown(f"no answer from {host}: {type(error).__name__}") from None
