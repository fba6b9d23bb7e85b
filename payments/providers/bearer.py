"""JSON calls with a bearer token, which is fetched by our client's credentials and used until it ends."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from payments.errors import OutcomeUnknown, ProviderError, ProviderUnavailable
from payments.providers.documents import text_of
from payments.providers.transport import Limits, reading, send

SPARE_SECONDS = 60  # a token that ends sooner is not used any more


class Bearer:
    """Sends JSON with a token of `token_url` (RFC 6749, section 4.4). Thread-safe."""

    def __init__(
        self,
        session: httpx.Client,
        token_url: str,
        login: httpx.BasicAuth,
        *,
        clock: Callable[[], float],
        limits: Limits,
    ) -> None:
        self._session, self._token_url, self._login = session, token_url, login
        self._clock, self._limits = clock, limits
        self._guard = threading.Lock()
        self._token, self._ends_at = "", 0.0

    def call(
        self, method: str, url: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one call, and return the status and the object of its answer ({} for an empty one).

        Raises as `transport.send`; ProviderUnavailable also without a token that is taken, and for too many calls.
        """
        token = self._current()
        request = self._session.build_request(
            method, url, json=body, headers={**(headers or {}), "Authorization": f"Bearer {token}"}
        )
        received = send(self._session, request, limits=self._limits)
        if received.status == httpx.codes.TOO_MANY_REQUESTS:
            raise ProviderUnavailable(f"{request.url.host} asks for fewer calls")
        if received.status == httpx.codes.UNAUTHORIZED:
            self._forget(token)
            raise ProviderUnavailable(f"{request.url.host} does not take our token")
        return received.status, received.document()

    def _current(self) -> str:
        with self._guard:
            if self._clock() >= self._ends_at:
                self._token, self._ends_at = self._fetched()
            return self._token

    def _forget(self, token: str) -> None:
        with self._guard:
            if token == self._token:
                self._ends_at = 0.0

    def _fetched(self) -> tuple[str, float]:
        """Fetch a token. Whatever fails here, the call itself was not sent."""
        asked_at = self._clock()
        wanted = {"grant_type": "client_credentials"}
        request = next(self._login.auth_flow(self._session.build_request("POST", self._token_url, data=wanted)))
        try:
            received = send(self._session, request, limits=self._limits)
            if received.status != httpx.codes.OK:
                raise OutcomeUnknown(f"answered {received.status}")
            with reading("token"):
                granted = received.document()
                return text_of(granted, "access_token"), asked_at + int(granted["expires_in"]) - SPARE_SECONDS
        except ProviderError as error:
            raise ProviderUnavailable(f"{request.url.host} gave no token: {error}") from error
