"""JSON calls with a bearer token, fetched by client credentials and used until it ends."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from payments.errors import OutcomeUnknown, ProviderError, ProviderUnavailable
from payments.providers.documents import text_of
from payments.providers.transport import Answer, reading

SPARE_SECONDS = 60  # a token that ends sooner is not used any more


class Bearer:
    """Transport of JSON with a token of `token_url` (RFC 6749, section 4.4). Thread-safe."""

    def __init__(
        self, send: Callable[..., Answer], token_url: str, login: httpx.BasicAuth, *, clock: Callable[[], float]
    ) -> None:
        self._send, self._token_url, self._login, self._clock = send, token_url, login, clock
        self._host, self._guard = httpx.URL(token_url).host, threading.Lock()
        self._token, self._ends_at = "", 0.0

    def call(
        self, method: str, url: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one call, and return the status and the object of its answer ({} for an empty one).

        Raises as `transport.send`; ProviderUnavailable also without a token that is taken, and for too many calls.
        """
        for _ in range(2):  # a token may be revoked before it ends; then the call was turned away unread
            token = self._current()
            bearing = {**(headers or {}), "Authorization": f"Bearer {token}"}
            received = self._send(method, url, json=body, headers=bearing)
            if received.status != httpx.codes.UNAUTHORIZED:
                break
            self._forget(token)
        if received.status == httpx.codes.UNAUTHORIZED:
            raise ProviderUnavailable(f"{self._host} does not take our token")
        if received.status == httpx.codes.TOO_MANY_REQUESTS:
            raise ProviderUnavailable(f"{self._host} asks for fewer calls")
        if received.status == httpx.codes.CONFLICT:
            raise OutcomeUnknown(f"{self._host} is still at an earlier call")
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
        asked_at, wanted = self._clock(), {"grant_type": "client_credentials"}
        signed = next(self._login.auth_flow(httpx.Request("POST", self._token_url))).headers["Authorization"]
        try:
            received = self._send("POST", self._token_url, data=wanted, headers={"Authorization": signed})
            if received.status != httpx.codes.OK:
                raise OutcomeUnknown(f"answered {received.status}")
            with reading("token"):
                granted = received.document()
                return text_of(granted, "access_token"), asked_at + int(granted["expires_in"]) - SPARE_SECONDS
        except ProviderError as error:
            raise ProviderUnavailable(f"{self._host} gave no token: {error}") from error
