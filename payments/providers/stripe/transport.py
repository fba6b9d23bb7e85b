"""Network of Stripe's library: our own `payments.providers.transport`.

So its calls have our time-outs, pool and limits, are never sent twice, and failures show whether they left this
machine, which the library's own clients do not.
"""

from collections.abc import Callable, Mapping
from typing import Any

import stripe

from payments.providers.transport import Answer


class Transport(stripe.HTTPClient):
    """HTTP client of `stripe.StripeClient`. Thread-safe."""

    name = "httpx"

    def __init__(self, send: Callable[..., Answer]) -> None:
        super().__init__()
        self._send = send

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> tuple[str, int, Mapping[str, str]]:
        """Send one call; raises as `payments.providers.transport.send`."""
        # the library would send this machine's name, and how long our last call took
        given = {
            name: value
            for name, value in (headers or {}).items()
            if not name.lower().startswith("x-stripe-client-")
        }
        given["User-Agent"] = "payonce"
        received = self._send(method.upper(), url, headers=given, content=post_data or None)
        return received.content.decode(errors="replace"), received.status, received.headers
