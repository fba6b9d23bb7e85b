"""Fetching a file of bounded size from an address that a genuine answer named."""

import time
from collections.abc import Callable
from contextlib import nullcontext

import httpx

from payments.errors import OutcomeUnknown, ProviderUnavailable
from payments.providers.transport import Limits

MAX_SECONDS = 120.0


def download(
    session: httpx.Client,
    url: str,
    *,
    max_bytes: int,
    limits: Limits = nullcontext,
    clock: Callable[[], float] = time.monotonic,
) -> bytes:
    """The bytes as they come over the wire: nothing is unpacked on the way, no redirect is followed.

    Args:
        max_bytes: more is refused as soon as it is seen.
        clock: seconds; a sender that drips is left after `MAX_SECONDS`.

    Raises:
        ProviderUnavailable: the request did not leave this machine.
        OutcomeUnknown: no whole file came, or too much.
    """
    try:
        host = httpx.URL(url).host
    except (httpx.InvalidURL, ValueError) as error:
        raise OutcomeUnknown("the file's address is none") from error
    ends, parts, length = clock() + MAX_SECONDS, [], 0
    try:
        with limits(), session.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            if response.status_code != 200 or response.headers.get("Content-Encoding", "identity") != "identity":
                raise OutcomeUnknown(f"{host} answered {response.status_code} and not with a file")
            for part in response.iter_raw():
                parts.append(part)
                length += len(part)
                if length > max_bytes:
                    raise OutcomeUnknown(f"the file of {host} is larger than {max_bytes} bytes")
                if clock() > ends:
                    raise OutcomeUnknown(f"the file of {host} does not end")
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise ProviderUnavailable(f"{host} cannot be reached: {type(error).__name__}") from error
    except httpx.HTTPError as error:
        raise OutcomeUnknown(f"no file from {host}: {type(error).__name__}") from error
    return b"".join(parts)
