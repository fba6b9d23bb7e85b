"""Calls to WeChat Pay v3: signed by us, believed only where the platform signed the answer.

An answer without a genuine signature leaves the outcome unknown.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import httpx

from payments.errors import OutcomeUnknown, ProviderRejected, ProviderUnavailable, SignatureInvalid
from payments.providers import rsa
from payments.providers.account import Account
from payments.providers.settings_fields import Settings
from payments.providers.transport import Answer, Limits, download
from payments.providers.wechat.keys import KeyRing
from payments.providers.wechat.settings import api_url, api_v3_keys, mch_pair, platform_keys
from payments.providers.wechat.signing import Signer, verify

# to be asked again, under the same number; Source: API v3, "error codes", "refund best practice" (read 2026-11)
_TOO_OFTEN = frozenset({"FREQUENCY_LIMITED", "FREQUENCY_LIMIT_EXCEED", "RATELIMIT_EXCEEDED"})


class WeChatCalls(Account):
    """Signed calls of one merchant account. Thread-safe. Raises ConfigError."""

    def __init__(self, settings: Settings, limits: Limits, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(settings["MCH_ID"], limits=limits, clock=clock)
        self._url, self._app_id = api_url(settings), settings["APP_ID"]
        self._api_v3_keys = api_v3_keys(settings)
        serial, pem = mch_pair(settings)
        self._signer = Signer(mch_id=self.merchant, serial=serial, key=rsa.load_private_key(pem))
        self._platform = KeyRing(platform_keys(settings))

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one signed request and return the decoded, verified answer ({} for 204).

        Raises:
            ProviderRejected: refused, by its code.
            ProviderUnavailable: too many calls; this one did nothing.
            OutcomeUnknown: no answer, or one without success, such as ``202 USER_PAYING``.
        """
        text = "" if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        headers = self._headers(method, path, text)
        received = self.send(method, self._url + path, content=text.encode(), headers=headers)
        self._verify_answer(received)
        answer = received.document()
        status, code = received.status, str(answer.get("code", received.status))
        if status in (httpx.codes.OK, httpx.codes.NO_CONTENT) and "code" not in answer:
            return answer
        if status == httpx.codes.TOO_MANY_REQUESTS or code in _TOO_OFTEN:
            raise ProviderUnavailable(f"the platform asks for fewer calls: {code}")
        if status == httpx.codes.UNAUTHORIZED:
            raise ProviderUnavailable(f"the platform does not take our signature: {code}")
        if status < 300:
            raise OutcomeUnknown(f"the platform answered {status} {code}: it is not done")
        raise ProviderRejected(code, str(answer.get("message", "")))

    def _download(self, address: str, *, bytes_max: int) -> bytes:
        """Fetch a file that a signed answer named; the file is not signed, so the caller checks it."""
        headers = self._headers("GET", self._own_target(address), "") | {"Accept": "*/*"}
        return download(self._http, address, headers=headers, bytes_max=bytes_max, limits=self._limits)

    def _own_target(self, address: str) -> str:
        """Return path and query of `address` as signed; OutcomeUnknown at any host but our API's."""
        base = httpx.URL(self._url)
        prefix = base.raw_path.rstrip(b"/")
        try:
            url = httpx.URL(address)
        except (httpx.InvalidURL, TypeError):
            raise OutcomeUnknown("the download's address is none") from None
        same = (url.scheme, url.host, url.port, url.userinfo) == (base.scheme, base.host, base.port, b"")
        if not same or not url.raw_path.startswith(prefix + b"/v3/"):
            raise OutcomeUnknown(f"the download is at {url.host!r}, which is not the API's own address")
        return url.raw_path.removeprefix(prefix).decode("ascii")

    def _decrypt(self, sealed: Mapping[str, Any]) -> bytes:
        """Decrypt an ``AEAD_AES_256_GCM`` part by any key that we hold; raises of `UNREADABLE`."""
        if sealed["algorithm"] != "AEAD_AES_256_GCM":
            raise ValueError(f"unknown algorithm {sealed['algorithm']!r}")
        ciphertext, nonce = sealed["ciphertext"], sealed["nonce"].encode()
        associated_data = (sealed.get("associated_data") or "").encode()
        decrypt = partial(rsa.decrypt, ciphertext, nonce=nonce, associated_data=associated_data)
        *earlier, last = self._api_v3_keys  # the current one first; older messages may need a former
        for key in earlier:
            with suppress(ValueError):
                return decrypt(key=key)
        return decrypt(key=last)

    def _headers(self, method: str, path: str, body: str) -> dict[str, str]:
        headers = {
            "Authorization": self._signer.authorization(method=method, target=path, body=body, now=self._clock()),
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "payonce",
        }
        # naming a public key asks the platform to sign its answer with it instead of a certificate
        if self._platform.public_key_id is not None:
            headers["Wechatpay-Serial"] = self._platform.public_key_id
        return headers

    def _verify_answer(self, received: Answer) -> None:
        try:
            verify(received.headers, received.content, keys=self._platform, now=self._clock())
        except SignatureInvalid as error:
            # an unsigned refusal may come from anything on the way; it proves nothing
            raise OutcomeUnknown(f"answer {received.status} is not signed by the platform: {error}") from error
