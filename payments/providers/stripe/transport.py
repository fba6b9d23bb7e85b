"""The way of Stripe's library to the network is ours: `payments.providers.transport`.

So a call has our time-outs, pool and limits, is never sent twice, and a failure says whether it left this machine,
which the library's own clients do not tell.
"""

from collections.abc import Mapping
from typing import Any

import httpx
import stripe

from payments.providers.transport import Limits, send


class Transport(stripe.HTTPClient):
    """What `stripe.StripeClient` sends with. Thread-safe.

    Args:
        session: of `payments.providers.transport.client`.
        limits: around every call.
    """

    name = "httpx"

    def __init__(self, session: httpx.Client, limits: Limits) -> None:
        super().__init__()
        self._session = session
        self._limits = limits

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> tuple[str, int, Mapping[str, str]]:
        """One call.

        Raises:
            ProviderUnavailable, OutcomeUnknown: as `payments.providers.transport.send` says.
        """
        # the library would tell Stripe this machine's name, and how long our last call took
        kept = {
            name: value
            for name, value in (headers or {}).items()
            if not name.lower().startswith("x-stripe-client-")
        }
        request = self._session.build_request(
            method.upper(), url, headers={**kept, "User-Agent": "payonce"}, content=post_data or None
        )
        came = send(self._session, request, limits=self._limits)
        return came.content.decode(errors="replace"), came.status, came.headers

    def close(self) -> None:
        """Close the pool."""
        self._session.close()
